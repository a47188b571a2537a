"""The events of a run, for threads and for event loops."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, final

from pronk._agent_events import AgentEvent, AgentResult
from pronk._agent_run import AgentRun, ForDelta, ForWorkers
from pronk._errors import Error
from pronk._tool_workers import LoopWorkers, ThreadWorkers, Workers

if TYPE_CHECKING:
    from pronk._agent_run import Wait

MakeRun = Callable[[Workers, bool], AgentRun]
"""Makes the run, for a thread or, if true, for a task."""


@final
class AgentStream:
    """A run of an agent: iterate over its events, await it, ask for its result, cancel it.

    Nothing runs before the first of these. Iteration is sync or async, and in one thread or task at
    a time. Dropping the stream, closing it and any exception that ends the iteration stop what
    runs: the model call is cancelled and its permit given back, async tools are cancelled, sync
    ones are left alone and what they return is dropped. The conversation then has what the model
    said so far, and every call in it has a result.

    Example:
        >>> with agent.stream("What is 12 * 34?") as stream:
        ...     for event in stream:
        ...         print(event.type, event.text)
        >>> stream.result().text
    """

    def __init__(self, make_run: MakeRun, on_end: Callable[[], None]) -> None:
        self._make_run = make_run
        self._on_end: Callable[[], None] | None = on_end
        self._workers: Workers | None = None
        self._run: AgentRun | None = None
        self._steps: Generator[AgentEvent | Wait, Any, None] | None = None
        self._result: AgentResult | None = None
        self._cancelled = False
        self._ended = False
        self._waiting = threading.Lock()  # held while somebody waits for an event

    # ---- in a thread ----

    def __iter__(self) -> AgentStream:
        return self

    def __next__(self) -> AgentEvent:
        self._begin_wait()
        try:
            event = self._next()
        except BaseException:
            self.close()
            raise
        finally:
            self._waiting.release()
        if event is None:
            raise StopIteration
        return event

    def _next(self) -> AgentEvent | None:
        if self._ended:
            return None
        workers = self._workers_for(ThreadWorkers, ThreadWorkers)
        value: Any = None
        error: Exception | None = None
        while True:
            step = self._step(value, error)
            if step is None or isinstance(step, AgentEvent):
                return step
            value = error = None
            try:
                if isinstance(step, ForWorkers):
                    workers.wait(step.seconds)
                else:
                    value = next(step.deltas, None)
            except Exception as raised:  # noqa: BLE001 - the run decides what it means
                error = raised

    def result(self) -> AgentResult:
        """Run to the end and return what it came to. Events not taken yet are passed over.

        Raises:
            pronk.Error: What ended the run, if it failed; or the stream was closed before its end.
        """
        for _ in self:
            pass
        return self._finished()

    # ---- in a task ----

    def __aiter__(self) -> AgentStream:
        return self

    async def __anext__(self) -> AgentEvent:
        self._begin_wait()
        try:
            event = await self._next_async()
        except StopAsyncIteration as error:
            self.close()
            # Of a callback. It would pass for the end of the events.
            raise RuntimeError("stream: a callback raised StopAsyncIteration") from error
        except BaseException:
            self.close()
            raise
        finally:
            self._waiting.release()
        if event is None:
            raise StopAsyncIteration
        return event

    async def _next_async(self) -> AgentEvent | None:
        if self._ended:
            return None
        from pronk._async import current_hub

        hub = current_hub()
        workers = self._workers_for(LoopWorkers, lambda: LoopWorkers(hub))
        if workers.hub is not hub:
            raise Error(
                "stream: got an iteration in a second event loop, expected all of it in one, "
                "go on in the loop where it began"
            )
        value: Any = None
        error: Exception | None = None
        while True:
            step = self._step(value, error)
            if step is None or isinstance(step, AgentEvent):
                return step
            value = error = None
            try:
                if isinstance(step, ForWorkers):
                    await workers.wait_async(step.seconds)
                else:
                    value = await _next_delta(step)
            except Exception as raised:  # noqa: BLE001 - the run decides what it means
                error = raised

    def __await__(self) -> Generator[Any, Any, AgentResult]:
        return self._drain().__await__()

    async def _drain(self) -> AgentResult:
        async for _ in self:
            pass
        return self._finished()

    # ---- its end ----

    @property
    def done(self) -> bool:
        """Whether the run has ended, whatever way."""
        return self._ended

    def cancel(self) -> None:
        """End the run early, with reason 'cancelled'. From any thread; never blocks.

        Whoever iterates is given the remaining events. Running tools are treated as by `close`.
        """
        self._cancelled = True
        run = self._run
        if run is not None:
            run.cancel()

    def close(self) -> None:
        """Stop at once, without further events. Never blocks, may be called twice."""
        self._ended = True
        if self._run is not None:
            self._run.close()
        if self._steps is not None:
            # Another thread may be in it; it then ends there.
            with suppress(ValueError):
                self._steps.close()
        self._release()

    def _release(self) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()

    async def aclose(self) -> None:
        """As :meth:`close`."""
        self.close()

    def __enter__(self) -> AgentStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> AgentStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_ended", True):
            self.close()

    def __repr__(self) -> str:
        state = "ended" if self._ended else "running" if self._steps else "not begun"
        return f"<pronk.AgentStream {state}>"

    # ---- shared ----

    def _begin_wait(self) -> None:
        if not self._waiting.acquire(blocking=False):
            raise Error(
                "stream: got iteration by a second thread or task, expected one at a time, "
                "hand its events on instead"
            )

    def _workers_for(self, kind: type[Any], make: Callable[[], Workers]) -> Any:
        if self._workers is None:
            self._workers = make()
            self._run = self._make_run(self._workers, kind is LoopWorkers)
            self._steps = self._run.steps()
            if self._cancelled:
                self._run.cancel()
        elif not isinstance(self._workers, kind):
            raise Error(
                "stream: got both sync and async iteration, expected one of them, "
                "go on in the way it began"
            )
        return self._workers

    def _step(self, value: Any, error: Exception | None) -> AgentEvent | Wait | None:
        """Go on to the next event or wait; None at the end."""
        assert self._steps is not None
        if self._ended:
            return None
        try:
            step = self._steps.send(value) if error is None else self._steps.throw(error)
        except StopIteration:
            self.close()
            return None
        if isinstance(step, AgentEvent) and step.completion is not None:
            self._result = step.completion
            self._release()
        return step

    def _finished(self) -> AgentResult:
        if self._result is None:
            raise Error(
                "stream: got a request for the result of a run that was stopped before its end, "
                "expected one that ended, start another"
            )
        return self._result


async def _next_delta(step: ForDelta) -> Any:
    try:
        return await step.deltas.__anext__()
    except StopAsyncIteration:
        return None
