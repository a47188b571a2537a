"""One run of an agent: model calls and tools in turns.

Written once, as a generator, for threads and event loops alike: it yields events, and where it has
to wait it yields what for. `pronk._agent_stream` does the waiting.
"""

from __future__ import annotations

import copy
import inspect
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pronk._agent_context import AgentContext
from pronk._agent_events import (
    NOTHING,
    AgentCallResult,
    AgentEvent,
    AgentResult,
    AgentUsage,
    Reason,
)
from pronk._agent_turn import Job, Turn, with_ids
from pronk._compaction import choose, is_summary, split_system, summarised
from pronk._core import check_deadlock
from pronk._errors import (
    ContextOverflowError,
    GenerationCancelled,
    InvalidArgumentError,
    InvalidTypeError,
)
from pronk._tool_content import content_of
from pronk._tool_workers import Outcome, Workers

if TYPE_CHECKING:
    from pronk._agent_events import EventType, Message
    from pronk._agent_settings import AgentSettings
    from pronk._conversation import Conversation
    from pronk._core import Completion, Generation

_DENIED = "error: denied: the call was not approved, do not repeat it"
_CANCELLED = "error: cancelled: the call was stopped before it had a result"


@dataclass(frozen=True)
class ForDelta:
    """A wait for the next delta of a generation; its value is that, or None at the end."""

    deltas: Any


@dataclass(frozen=True)
class ForWorkers:
    """A wait for an outcome, so many seconds at most. It may end early."""

    seconds: float | None = None


Wait = ForDelta | ForWorkers
Steps = Generator[AgentEvent | Wait, Any, Any]


@dataclass
class _Progress:
    """What a run has come to."""

    iteration: int = 0
    usage: AgentUsage = field(default_factory=AgentUsage)
    messages: list[Message] = field(default_factory=list)
    results: list[AgentCallResult] = field(default_factory=list)
    text: str = ""
    completion: Completion | None = None


class AgentRun:
    """The state of a run. Used by one thread or task at a time, but for `cancel`."""

    def __init__(
        self,
        settings: AgentSettings,
        conversation: Conversation,
        prompt: list[Message],
        workers: Workers,
        *,
        in_task: bool,
    ) -> None:
        self._settings = settings
        self._context = AgentContext(settings)
        self._conversation = conversation
        # Enters the conversation with what the model says to it.
        self._prompt = prompt
        self._workers = workers
        self._in_task = in_task
        self._id = uuid.uuid4().hex
        self._events = 0
        self._began = (time.time(), time.perf_counter())
        self._done = _Progress()
        self._call_ids: set[str] = set()
        self._generation: Generation | None = None
        self._sent = 0  # messages of the model call under way
        self._said: list[str] = []  # pieces of what the model has said in it
        self._turn: Turn | None = None
        self._cancelled = threading.Event()
        self._closing = threading.RLock()
        self._closed = False  # guarded by _closing
        # Of the conversation before the commit under way.
        self._length: int | None = None

    def cancel(self) -> None:
        """End the run early. From any thread."""
        self._cancelled.set()
        generation = self._generation
        if generation is not None:
            generation.cancel()
        self._workers.put(None, Outcome())

    def close(self) -> None:
        """Stop whatever runs, and leave the conversation whole. At any moment, from any thread."""
        with self._closing:
            if self._closed:
                return
            if self._generation is not None:
                self._generation.cancel()
            if self._length is not None and len(self._conversation) > self._length:
                pass  # interrupted in a commit, when all was there already
            elif self._turn is not None:
                self._turn.settle("cancelled", _CANCELLED)
                self._commit(self._turn.messages())
            elif self._said:
                self._commit([{"role": "assistant", "content": "".join(self._said)}])
            self._workers.close()
            # Last, so that a second attempt does what an interrupt kept the first from doing.
            self._closed = True
        self._cancelled.set()
        self._workers.put(None, Outcome())  # wakes whoever waits in another thread

    def steps(self) -> Generator[AgentEvent | Wait, Any, None]:
        """Run: yields events and waits."""
        try:
            reason = yield from self._iterate()
            self.close()
        except Exception as error:
            self.close()
            yield self._event("error", error=error)
            raise
        result = AgentResult(
            text=self._done.text,
            reason=reason,
            messages=copy.deepcopy(self._done.messages),
            iterations=self._done.iteration,
            usage=self._done.usage,
            results=list(self._done.results),
            completion=self._done.completion,
        )
        yield self._event("completed", completion=result, usage=result.usage)

    def _iterate(self) -> Generator[AgentEvent | Wait, Any, Reason]:
        for iteration in range(1, self._settings.max_iterations + 1):
            dropped = yield from self._compact(by_force=False)
            if self._cancelled.is_set():
                return "cancelled"
            self._done.iteration = iteration
            yield self._event("iteration", dropped=dropped)
            completion = yield from self._call_model()
            reason = yield from self._answer(completion)
            if reason is not None:
                return reason
            if self._cancelled.is_set():
                return "cancelled"
        return "max_iterations"

    # ---- the model ----

    def _call_model(self) -> Generator[AgentEvent | Wait, Any, Completion]:
        while True:
            try:
                generation = self._start_generation()
            except ContextOverflowError:
                # Counted too low, or the first call, before the pool says how much fits.
                dropped = yield from self._compact(by_force=True)
                if not dropped:
                    raise
                continue
            yield self._event("queued", waiting=self._settings.scheduler.waiting_count)
            deltas = generation.deltas()
            try:
                while (delta := (yield ForDelta(deltas))) is not None:
                    if delta.reasoning_content:
                        yield self._event("reasoning", text=delta.reasoning_content)
                    if delta.content:
                        self._said.append(delta.content)
                        yield self._event("text", text=delta.content)
            except GenerationCancelled:
                pass  # what there was of it is its result
            return generation.result()

    def _start_generation(self) -> Generation:
        settings = self._settings
        params = dict(settings.params)
        if settings.tools:
            params["tools"] = [tool.definition for tool in settings.tools.values()]
        # Once obeyed, a demand for a call would be made for ever.
        if self._done.iteration > 1 and params.get("tool_choice") not in (None, "auto", "none"):
            params["tool_choice"] = "auto"
        check_deadlock(settings.scheduler, not self._in_task)
        messages = self._conversation.messages + self._prompt
        self._sent = len(messages)
        # Queued: it has its own permit as long as it runs, however slowly its events are taken.
        self._generation = settings.scheduler.chat(messages, **params)
        if self._cancelled.is_set():
            self._generation.cancel()
        return self._generation

    def _answer(self, completion: Completion) -> Generator[AgentEvent | Wait, Any, Reason | None]:
        """Do what the model asks for. Return why the run ends, if it does."""
        usage = AgentUsage(
            completion.usage.prompt_tokens,
            completion.usage.cached_tokens,
            completion.usage.completion_tokens,
        )
        self._done.usage += usage
        self._done.completion = completion
        self._context.learn(self._sent, usage.prompt_tokens + usage.completion_tokens)
        message: Message = with_ids(completion.message or {}, self._call_ids)
        finish = completion.finish_reason
        calls = finish not in ("length", "cancelled") and bool(message["tool_calls"])
        if not calls:
            # Of a message that was cut off, calls may be incomplete: none of them is run.
            del message["tool_calls"]
        self._done.text = message.get("content") or ""
        if calls:
            self._turn = Turn(message, self._settings.tools)
        elif finish != "cancelled" or self._done.text:
            self._commit([message])
        self._said = []
        yield self._event(
            "message", message=copy.deepcopy(message), finish_reason=finish, usage=usage
        )
        if self._turn is None:
            reasons: dict[str, Reason] = {"length": "length", "cancelled": "cancelled"}
            return reasons.get(finish, "done")
        denied = yield from self._run_turn(self._turn)
        self._commit(self._turn.messages())
        return "denied" if denied else None

    # ---- the tools ----

    def _run_turn(self, turn: Turn) -> Generator[AgentEvent | Wait, Any, bool]:
        for job in turn.jobs:
            if job.result is not None:
                yield self._result_event(job)
        # Nothing runs before all that needs it is approved.
        denied = yield from self._ask(turn)
        if not denied and not self._cancelled.is_set():
            yield from self._run_tools(turn)
        if self._cancelled.is_set():
            for job in turn.settle("cancelled", _CANCELLED):
                yield self._result_event(job)
        return denied

    def _ask(self, turn: Turn) -> Generator[AgentEvent | Wait, Any, bool]:
        """Ask for approval. Return whether a call was denied, which ends the run."""
        for job in turn.open_jobs:
            if job.tool is None or not job.tool.needs_approval:
                continue
            answer = yield from self._call_user(self._settings.approve, job.call)
            if self._cancelled.is_set():
                return False
            if not isinstance(answer, (bool, str)):
                raise InvalidTypeError(
                    f"approve: got {answer!r} ({type(answer).__name__}), expected True, False or "
                    "a text that tells the model why not, return one of them"
                )
            yield self._event("approval", call=job.call, approved=answer is True)
            if isinstance(answer, str):
                job.finish("denied", content_of(f"error: denied: {answer}"))
                yield self._result_event(job)
            elif not answer:
                job.finish("denied", _DENIED)
                yield self._result_event(job)
                for other in turn.settle(
                    "cancelled", "error: cancelled: another call was denied, so this did not run"
                ):
                    yield self._result_event(other)
                return True
        return False

    def _run_tools(self, turn: Turn) -> Steps:
        tasks, waiting = _split(turn.open_jobs)
        running: dict[Job, None] = {}
        while True:
            free = self._settings.max_tool_threads - sum(job.in_thread for job in running)
            starting = tasks + [waiting.popleft() for _ in range(min(free, len(waiting)))]
            tasks = []
            events = []
            for job in starting:
                running[job] = None
                job.start(self._workers)
                events.append(self._event("tool_start", call=job.call))
            yield from events
            # Looked at after the last take, which may have taken what cancel() put there.
            if not running or self._cancelled.is_set():
                return
            deadlines = [job.deadline for job in running if job.deadline is not None]
            yield ForWorkers(max(0.0, min(deadlines) - time.monotonic()) if deadlines else None)
            yield from self._take_outcomes(running, self._context.shortener(len(turn.jobs)))

    def _take_outcomes(self, running: dict[Job, None], shorten: Callable[[str], str]) -> Steps:
        while (item := self._workers.take()) is not None:
            job, outcome = item
            # Others were given up before.
            if isinstance(job, Job) and job in running and job.end(outcome, self._workers, shorten):
                del running[job]
                yield self._result_event(job)
        now = time.monotonic()
        for job in [each for each in running if each.deadline is not None]:
            if job.deadline is not None and job.deadline <= now:
                job.expire()
                del running[job]
                yield self._result_event(job)

    def _call_user(self, function: Callable[..., Any] | None, argument: object) -> Steps:
        """Call a callback: in a thread that blocks at once, elsewhere without blocking the loop."""
        assert function is not None
        value: Any = None
        if inspect.iscoroutinefunction(function) or not self._in_task:
            value = function(argument)
        else:
            token = object()
            self._workers.in_thread(token, lambda: function(argument))
            value = yield from self._outcome_of(token)
        if inspect.isawaitable(value):
            awaitable = value
            token = object()
            cancel = self._workers.in_loop(token, lambda: awaitable)
            value = yield from self._outcome_of(token, cancel)
        return value

    def _outcome_of(self, token: object, cancel: Callable[[], None] | None = None) -> Steps:
        try:
            while True:
                while (item := self._workers.take()) is not None:
                    if item[0] is token:
                        cancel = None
                        if item[1].error is not None:
                            raise item[1].error
                        return item[1].value
                if self._cancelled.is_set():
                    return None
                yield ForWorkers()
        finally:
            if cancel is not None:
                cancel()

    # ---- the conversation ----

    def _commit(self, messages: list[Message]) -> None:
        """Add to the conversation, with the prompt if this is the first."""
        added = self._prompt + messages
        self._length = len(self._conversation)
        self._conversation.extend(added)
        self._done.messages += added
        if self._turn is not None:
            self._done.results += [job.result for job in self._turn.jobs if job.result is not None]
        self._prompt, self._turn, self._said = [], None, []
        self._length = None

    def _compact(self, *, by_force: bool) -> Generator[AgentEvent | Wait, Any, int]:
        """Drop old messages if they are too many. Return how many went."""
        budget = self._context.budget()
        if self._settings.scheduler.engine is None or (budget is None and not by_force):
            return 0
        system, rest = split_system(self._conversation.messages)
        total = self._context.tokens(system + rest + self._prompt, 0 if by_force else budget)
        if budget is None or by_force:
            budget = min(total, budget or total)
        elif total <= budget:
            return 0
        # Whatever is not history: the system prompt, the tools, the new question.
        fixed = max(0, total - sum(map(self._context.estimate, rest)))
        # Half, so that it happens rarely: each time, the prefix after the system prompt changes.
        kept, dropped = choose(
            rest, max(0, budget // 2 - fixed), self._context.estimate, answered=bool(self._prompt)
        )
        # To summarise a summary gains nothing.
        if not dropped or is_summary(dropped):
            return 0
        if self._settings.summarise is not None:
            summary = yield from self._call_user(self._settings.summarise, dropped)
            if self._cancelled.is_set():
                return 0
            if not isinstance(summary, str):
                raise InvalidTypeError(
                    f"summarise: got {summary!r} ({type(summary).__name__}), expected a text, "
                    "return what the dropped messages said"
                )
            kept = summarised(summary) + kept
        self._conversation.replace(system + kept)
        self._context.forget()
        return len(dropped)

    # ---- events ----

    def _event(self, type: EventType, **fields: Any) -> AgentEvent:  # noqa: A002 - its name there
        self._events += 1
        began, clock = self._began
        return AgentEvent(
            type=type,
            run_id=self._id,
            id=self._events,
            time=began + time.perf_counter() - clock,
            iteration=self._done.iteration,
            **(NOTHING | fields),
        )

    def _result_event(self, job: Job) -> AgentEvent:
        return self._event("tool_result", call=job.call, result=job.result)


def _split(jobs: list[Job]) -> tuple[list[Job], deque[Job]]:
    """Return those that run as tasks, all at once, and those that need a thread each."""
    tasks = [job for job in jobs if job.tool is not None and job.tool.is_async]
    return tasks, deque(job for job in jobs if job.tool is not None and not job.tool.is_async)


def check_prompt(prompt: list[Message], conversation: Conversation) -> None:
    """Refuse to run on nothing.

    Raises:
        pronk.InvalidArgumentError: There is nothing to answer.
    """
    if not prompt and not split_system(conversation.messages)[1]:
        raise InvalidArgumentError(
            "prompt: got None with an empty conversation, expected something to answer, "
            "pass what the user says"
        )
