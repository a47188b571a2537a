"""A model that calls tools until it has an answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pronk._agent_run import AgentRun, check_prompt
from pronk._agent_settings import AgentSettings
from pronk._agent_stream import AgentStream
from pronk._compaction import split_system
from pronk._conversation import Conversation, as_messages
from pronk._core import InferenceScheduler
from pronk._errors import AgentBusyError, InvalidArgumentError, InvalidTypeError
from pronk._tool import Tool, as_tools

if TYPE_CHECKING:
    from pronk._agent_events import AgentCall, AgentResult, Message
    from pronk._tool_workers import Workers

    Prompt = str | Mapping[str, Any] | Iterable[Mapping[str, Any]] | None


class Agent:
    """Asks the model, runs the tools it calls, tells it the results, until it answers.

    Each model call has a permit of its own, which is given back before a tool runs: any number of
    agents share a scheduler, and a tool may run agents on the same one. An agent runs once at a
    time; :meth:`fork` makes another with the same history.

    Args:
        scheduler: With an engine whose model has a chat template.
        system_prompt: First message of the conversation. One that ``conversation`` has is replaced.
        tools: Functions, or what :func:`pronk.tool` returns. In prompts they are sorted by name.
        max_iterations: Most model calls in a run, 1 or more. The tools that the last one calls are
            still run.
        approve: Called with an :class:`AgentCall` before a tool that needs approval runs; sync or
            async. True lets it run, a text denies it and is passed to the model, False denies it
            and ends the run. Nothing of the same message runs before all is decided.
        conversation: History to go on with; the agent adds to it.
        context_tokens: When the messages are estimated to have more, the oldest are dropped, down
            to half of it. None is the context of a permit less room for the answer.
        summarise: Called with the dropped messages; sync or async. The text it returns stands in
            their place.
        max_tool_threads: Most sync tools of one run that run at once.
        **params: Of every model call, as for ``scheduler.chat``: max_tokens, temperature, priority,
            and so on. A ``tool_choice`` that demands a call holds for the first call of a run.

    Raises:
        pronk.InvalidArgumentError, pronk.InvalidTypeError: A bad argument, or a function of which
            no tool can be made.
        pronk.MissingDependencyError: There are tools, and ``pronk[agents]`` is not installed.

    Example:
        >>> def add(a: int, b: int) -> int:
        ...     '''Add two numbers.'''
        ...     return a + b
        >>> agent = pronk.Agent(scheduler, system_prompt="Be brief.", tools=[add], temperature=0)
        >>> agent.run("What is 2 + 3?").text
    """

    def __init__(
        self,
        scheduler: InferenceScheduler,
        *,
        system_prompt: str | None = None,
        tools: Iterable[Callable[..., Any]] = (),
        max_iterations: int = 10,
        approve: Callable[[AgentCall], Any] | None = None,
        conversation: Conversation | None = None,
        context_tokens: int | None = None,
        summarise: Callable[[list[Message]], Any] | None = None,
        max_tool_threads: int = 8,
        **params: Any,
    ) -> None:
        if not isinstance(scheduler, InferenceScheduler):
            raise InvalidTypeError(
                f"scheduler: got {scheduler!r:.80} ({type(scheduler).__name__}), expected a "
                "pronk.InferenceScheduler, make one with engine="
            )
        made = as_tools(tools)
        for each in made:
            _ = each.schema  # says now what is wrong with it
        asking = [each.name for each in made if each.needs_approval]
        if asking and approve is None:
            raise InvalidArgumentError(
                f"approve: got None with a tool that needs approval ({asking[0]}), expected a "
                "callback, pass approve="
            )
        for name, callback in (("approve", approve), ("summarise", summarise)):
            if callback is not None and not callable(callback):
                raise InvalidTypeError(
                    f"{name}: got {callback!r} ({type(callback).__name__}), expected a function "
                    "or None, pass one"
                )
        for name in ("messages", "tools"):
            if name in params:
                raise InvalidTypeError(f"{name}: got it twice, expected it once, leave it out")
        if system_prompt is not None and not isinstance(system_prompt, str):
            raise InvalidTypeError(
                f"system_prompt: got {system_prompt!r} ({type(system_prompt).__name__}), expected "
                "a text or None, pass a text"
            )
        self._settings = AgentSettings(
            scheduler=scheduler,
            tools={each.name: each for each in made},
            max_iterations=_count("max_iterations", max_iterations),
            approve=approve,
            summarise=summarise,
            context_tokens=(
                None if context_tokens is None else _count("context_tokens", context_tokens)
            ),
            max_tool_threads=_count("max_tool_threads", max_tool_threads),
            params=dict(params),
        )
        self._conversation = Conversation() if conversation is None else conversation
        if not isinstance(self._conversation, Conversation):
            raise InvalidTypeError(
                f"conversation: got {conversation!r} ({type(conversation).__name__}), expected a "
                "pronk.Conversation, make one of the messages"
            )
        if system_prompt is not None:
            rest = split_system(self._conversation.messages)[1]
            self._conversation.replace([{"role": "system", "content": system_prompt}, *rest])
        self._busy = threading.Lock()  # held while it runs

    @property
    def conversation(self) -> Conversation:
        """All messages so far."""
        return self._conversation

    @property
    def tools(self) -> list[Tool[..., Any]]:
        """The tools, in the order of the prompt."""
        return list(self._settings.tools.values())

    def run(self, prompt: Prompt = None) -> AgentResult:
        """Run to the end in this thread. Ctrl-C stops it, whatever it waits for.

        Async tools run in an event loop that lasts as long as the run.

        Args:
            prompt: What the user says: a text, a message or several. None goes on from where the
                conversation ends, for example after reason 'max_iterations'.

        Raises:
            pronk.AgentBusyError: It runs already.
            pronk.DeadlockError: This thread itself holds every permit.
            pronk.Error: What ended the run, such as a conversation too long for the context. The
                conversation then has all messages up to there.
        """
        return self.stream(prompt).result()

    async def run_async(self, prompt: Prompt = None) -> AgentResult:
        """As :meth:`run`, without blocking the event loop: sync tools run in threads.

        Cancelling the task cancels the run.
        """
        return await self.stream(prompt)

    def stream(self, prompt: Prompt = None) -> AgentStream:
        """Return the run as a stream of events, for ``for`` and ``async for``.

        Args:
            prompt: As for :meth:`run`.

        Raises:
            pronk.AgentBusyError: It runs already.
        """
        messages = as_messages(prompt)
        if not self._busy.acquire(blocking=False):
            raise AgentBusyError(
                "agent: got a run while another is under way, expected one at a time, "
                "wait for it, close its stream, or run a fork()"
            )
        try:
            check_prompt(messages, self._conversation)
            settings, conversation = self._settings, self._conversation

            def make_run(workers: Workers, in_task: bool) -> AgentRun:
                return AgentRun(settings, conversation, messages, workers, in_task=in_task)

            return AgentStream(make_run, self._busy.release)
        except BaseException:
            self._busy.release()
            raise

    def fork(self) -> Agent:
        """Return another agent with the same settings and a copy of the conversation.

        May be called while the agent runs; the copy then ends with the last whole turn.
        """
        settings = self._settings
        return Agent(
            settings.scheduler,
            tools=settings.tools.values(),
            max_iterations=settings.max_iterations,
            approve=settings.approve,
            conversation=self._conversation.fork(),
            context_tokens=settings.context_tokens,
            summarise=settings.summarise,
            max_tool_threads=settings.max_tool_threads,
            **settings.params,
        )

    def __repr__(self) -> str:
        return (
            f"<pronk.Agent of {len(self._settings.tools)} tools, "
            f"{len(self._conversation)} messages>"
        )


def _count(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidArgumentError(
            f"{name}: got {value!r}, expected an integer of 1 or more, pass one"
        )
    return value
