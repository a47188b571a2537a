"""What an agent tells: the events of a run and its result, frozen records."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pronk._tool_content import reason_of

if TYPE_CHECKING:
    from pronk._core import Completion

Message = dict[str, Any]
"""A message in OpenAI's form."""

EventType = Literal[
    "iteration",
    "queued",
    "text",
    "reasoning",
    "message",
    "approval",
    "tool_start",
    "tool_result",
    "completed",
    "error",
]
Reason = Literal["done", "max_iterations", "length", "cancelled", "denied"]
Status = Literal[
    "ok", "failed", "timeout", "invalid_arguments", "unknown_tool", "denied", "cancelled"
]


@dataclass(frozen=True)
class AgentUsage:
    """Tokens of one model call, or of all calls of a run.

    Example:
        >>> usage = agent.run("What is 12 * 34?").usage
        >>> evaluated = usage.prompt_tokens - usage.cached_tokens
    """

    prompt_tokens: int = 0
    """All tokens of the prompts."""
    cached_tokens: int = 0
    """Of these, not evaluated: reused from a known prefix."""
    completion_tokens: int = 0
    """Tokens sampled."""

    def __add__(self, other: AgentUsage) -> AgentUsage:
        return AgentUsage(
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.completion_tokens + other.completion_tokens,
        )


@dataclass(frozen=True)
class AgentCall:
    """A call of a tool that the model asks for.

    Example:
        >>> for event in agent.stream("What is 12 * 34?"):
        ...     if event.type == "tool_start":
        ...         print(event.call.name, event.call.arguments)
    """

    id: str
    """Names the call in the messages, and among all events of a run."""
    name: str
    """Of the tool, as the model wrote it."""
    arguments: dict[str, Any] | str
    """As the model wrote them; the text itself where it is not a JSON object."""


@dataclass(frozen=True)
class AgentCallResult:
    """What became of a call.

    Example:
        >>> results = agent.run("What is 12 * 34?").results
        >>> failed = [result.call.name for result in results if result.status != "ok"]
    """

    call: AgentCall
    status: Status
    """'ok', or why the tool did not run to its end. The model is told in every case."""
    content: str
    """What the model is told."""
    seconds: float
    """From the start of the tool to its end; 0 where it did not start."""
    exception: BaseException | None = field(repr=False)
    """What the tool raised, with status 'failed'."""


@dataclass(frozen=True)
class AgentResult:
    """What a run came to.

    Example:
        >>> result = agent.run("What is 12 * 34?")
        >>> if result.reason == "done":
        ...     print(result.text)
    """

    text: str
    """What the model said last; for reason 'done' its answer."""
    reason: Reason
    """Why the run ended. 'done': the model answered and called no tool. 'max_iterations': it still
    called tools in the last iteration allowed. 'length': its message was cut off at max_tokens or
    the end of the context. 'cancelled': the run or the scheduler was. 'denied': a call was not
    approved."""
    messages: list[Message] = field(repr=False)
    """What the run added to the conversation."""
    iterations: int
    """Model calls."""
    usage: AgentUsage
    """Of all model calls together."""
    results: list[AgentCallResult] = field(repr=False)
    """Of all calls of tools, in the order in which the model asked for them."""
    completion: Completion | None = field(repr=False, compare=False, metadata={"plain": False})
    """Of the last model call that ended, None if none did. Not in ``asdict()`` of an event."""

    @property
    def parsed(self) -> Any:
        """The value of the answer, with ``json_schema=`` or ``response_format=`` of the agent.

        None without one, and for any reason but 'done'. Raises what ``Completion.parsed`` raises.
        """
        if self.reason != "done" or self.completion is None:
            return None
        return self.completion.parsed


@dataclass(frozen=True)
class AgentEvent:
    """Something that happened in a run. Fields that the type does not name are None, 0 or "".

    Example:
        >>> for event in agent.stream("What is 12 * 34?"):
        ...     if event.type == "text":
        ...         print(event.text, end="")
    """

    type: EventType
    """'iteration': another round of model call and tools begins; ``dropped``. 'queued': the model
    call waits for its permit; ``waiting``. 'text', 'reasoning': a piece of what the model says;
    ``text``. 'message': the model call is over and its permit given back; ``message``,
    ``finish_reason``, ``usage``. 'approval': somebody decided; ``call``, ``approved``.
    'tool_start': ``call``. 'tool_result': ``call``, ``result``. 'completed': the last one;
    ``result`` of the run in ``completion``, ``usage`` of all calls. 'error': the last one, before
    the exception is raised; ``error``."""
    run_id: str
    """The same for all events of a run, different for all runs."""
    id: int
    """Number of the event in its run, from 1."""
    time: float
    """Seconds since the epoch; never goes back within a run."""
    iteration: int
    """From 1; 0 before the first."""
    text: str
    dropped: int
    """Messages that compaction took out before this iteration."""
    waiting: int
    """Waiters of the scheduler, this call included if it has to wait."""
    message: Message | None
    finish_reason: str | None
    usage: AgentUsage | None
    call: AgentCall | None
    approved: bool | None
    result: AgentCallResult | None
    completion: AgentResult | None
    error: BaseException | None

    def asdict(self) -> dict[str, Any]:
        """Return what is set as a new dict, as ``json.dumps`` takes it; exceptions as text."""
        return {
            field.name: _plain(value)
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != NOTHING.get(field.name, ...)
        }


NOTHING: dict[str, Any] = {
    "text": "",
    "dropped": 0,
    "waiting": 0,
    "message": None,
    "finish_reason": None,
    "usage": None,
    "call": None,
    "approved": None,
    "result": None,
    "completion": None,
    "error": None,
}
"""What the fields of an event are that its type does not name."""


def _plain(value: object) -> object:
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {reason_of(value)}"
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if dataclasses.is_dataclass(value):
        return {
            field.name: _plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.metadata.get("plain", True)
        }
    return value
