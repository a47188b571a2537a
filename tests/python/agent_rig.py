"""A scheduler whose model says what a function of the messages returns."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pronk
from pronk.testing import ScriptedModel

SECONDS = 20.0  # a guard against hangs

Message = dict[str, Any]
Calls = list[tuple[str, str]]
Reply = Callable[[list[Message]], "str | Calls"]


def call(name: str, /, **arguments: Any) -> str:
    """How the model writes a call."""
    text = json.dumps(arguments)
    return f'<tool_call>\n{{"name": "{name}", "arguments": {text}}}\n</tool_call>'


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def told(messages: list[Message]) -> list[str]:
    """What the tools of the last turn said."""
    results = []
    for message in reversed(messages):
        if message["role"] != "tool":
            break
        results.append(message["content"])
    return results[::-1]


def once(*calls_: str, answer: str = "") -> Callable[[list[Message]], str]:
    """A model that calls, and then says what it was told."""

    def reply(messages: list[Message]) -> str:
        if messages[-1]["role"] == "user":
            return "".join(calls_)
        return answer or " | ".join(told(messages))

    return reply


def check_whole(agent: pronk.Agent) -> list[Message]:
    """Every call has its result; the constructor checks that."""
    return pronk.Conversation(agent.conversation.messages).messages


class _Calling:
    """A generation, with calls in its message that this template's parser would take for text.

    Other parsers let the names of tools pass that do not exist, and arguments that are no object.
    """

    def __init__(self, generation: pronk.Generation, calls: Calls) -> None:
        self.generation = generation
        self.calls = calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self.generation, name)

    def result(self) -> Any:
        completion = self.generation.result()
        calls = [
            {"id": "same", "type": "function", "function": {"name": name, "arguments": text}}
            for name, text in self.calls
        ]
        message = {"role": "assistant", "content": "", "tool_calls": calls}
        return SimpleNamespace(message=message, finish_reason="tool_calls", usage=completion.usage)


class ScriptedScheduler(pronk.InferenceScheduler):
    """Runs a `ScriptedModel` that says to every chat what ``reply`` returns for its messages."""

    def __init__(
        self,
        reply: Reply,
        max_concurrent: int = 1,
        *,
        n_ctx: int = 16384,
        clock: Any = None,
        pieces: list[str | bytes] | None = None,
    ) -> None:
        self.model = ScriptedModel(pieces=pieces, n_ctx_train=131072)
        self.reply = reply
        self.params: list[dict[str, Any]] = []
        super().__init__(max_concurrent, engine=self.model.engine, n_ctx=n_ctx, clock=clock)

    def chat(self, messages: Any, **params: Any) -> Any:
        """Write the script, and play it."""
        options = {key: params[key] for key in ("tools", "tool_choice") if key in params}
        self.params.append(params)
        reply = self.reply(messages)
        text = reply if isinstance(reply, str) else ""
        self.model.script_chat(messages, text, **options)
        generation = super().chat(messages, **({"temperature": 0} | params))
        return generation if isinstance(reply, str) else _Calling(generation, reply)


Start = Callable[..., ScriptedScheduler]
