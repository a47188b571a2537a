"""How much of a context an agent's prompts may take, and how much they do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pronk._tool_content import cut

if TYPE_CHECKING:
    from pronk._agent_events import Message
    from pronk._agent_settings import AgentSettings
    from pronk._core import InferenceEngine

# What a message costs besides its text, roughly: its role and the marks around it.
_TOKENS_PER_MESSAGE = 8
# More bytes than a template adds to a message.
_MOST_OF_TEMPLATE = 200
# Tokens that a result always may have.
_LEAST_CONTENT = 50
# Of the parameters of a chat, those that change its prompt.
_TEMPLATE_OPTIONS = ("chat_template", "parallel_tool_calls", "template_kwargs", "tool_choice")


class AgentContext:
    """Of one run. The scheduler must have an engine, but for `budget`."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        # Messages of the last prompt, and its tokens with those of the answer.
        self._known = (0, 0)

    def budget(self) -> int | None:
        """Return the tokens that a prompt may have, None while nothing says so."""
        settings = self._settings
        if settings.context_tokens is not None:
            return settings.context_tokens
        n_ctx = settings.scheduler.statistics().n_ctx
        if not n_ctx:
            return None  # before the first call
        answer = settings.params.get("max_tokens")
        if not isinstance(answer, int):
            answer = n_ctx // 4
        return n_ctx - min(max(answer, 0), n_ctx // 2)

    def learn(self, messages: int, tokens: int) -> None:
        """Take note of what a prompt of so many messages had, with the answer to it."""
        self._known = (messages, tokens)

    def forget(self) -> None:
        """Take note that the messages changed."""
        self._known = (0, 0)

    def tokens(self, messages: list[Message], budget: int | None) -> int:
        """Return the tokens of a prompt, or what is surely no less if that is within the budget."""
        settings = self._settings
        definitions = [tool.definition for tool in settings.tools.values()]
        # A token is a byte at least, and templates add little to a message. What the last call
        # had is known, and rendering it again would cost as much as the call's own.
        known, most = self._known
        if known == 0:
            most = len(json.dumps(definitions)) + _MOST_OF_TEMPLATE
        most += sum(_bytes(message) + _MOST_OF_TEMPLATE for message in messages[known:])
        if budget is not None and most <= budget:
            return most
        options: dict[str, Any] = {
            name: settings.params[name] for name in _TEMPLATE_OPTIONS if name in settings.params
        }
        if definitions:
            options["tools"] = definitions
        return len(self._engine.tokenize_chat(messages, **options))

    def estimate(self, message: Message) -> int:
        """Return about how many tokens a message has."""
        tokens = self._engine.tokenize(_text(message), add_special=False)
        return len(tokens) + _TOKENS_PER_MESSAGE

    def shortener(self, results: int) -> Callable[[str], str]:
        """Return what cuts one of so many results: together they take half of the budget."""
        engine, budget = self._engine, self.budget()
        if budget is None:
            return lambda text: text
        limit = max(_LEAST_CONTENT, budget // 2 // results)
        return lambda text: cut(text, limit, engine)

    @property
    def _engine(self) -> InferenceEngine:
        engine = self._settings.scheduler.engine
        assert engine is not None
        return engine


def _text(message: Message) -> str:
    content = message.get("content") or ""
    text = content if isinstance(content, str) else json.dumps(content)
    text += message.get("reasoning_content") or ""
    calls = message.get("tool_calls")
    return text + json.dumps(calls) if calls else text


def _bytes(message: Message) -> int:
    return len(_text(message).encode("utf-8", "replace"))
