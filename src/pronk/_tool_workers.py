"""Where tools run while an agent waits: sync ones in threads, async ones in an event loop."""

from __future__ import annotations

import contextvars
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pronk._hub import Hub, Signal
    from pronk._tool_loop import LoopThread


@dataclass(frozen=True)
class Outcome:
    """How a call ended: with a value or an error."""

    value: Any = None
    error: BaseException | None = None


class Workers(ABC):
    """One per run. What ended is put into an inbox, from whatever thread it ran in.

    Threads are daemons, one per call: a tool that never returns then holds up neither its
    successors, as a worker of a pool would, nor the end of the interpreter.
    """

    def __init__(self) -> None:
        self._inbox: SimpleQueue[tuple[object, Outcome]] = SimpleQueue()
        self._ahead: deque[tuple[object, Outcome]] = deque()
        # What the caller has set there, tools find.
        self._context = contextvars.copy_context()

    def put(self, token: object, outcome: Outcome) -> None:
        """Hand over an outcome. From any thread."""
        self._inbox.put((token, outcome))

    def take(self) -> tuple[object, Outcome] | None:
        """Return what ended and how, None if there is nothing."""
        if self._ahead:
            return self._ahead.popleft()
        try:
            return self._inbox.get_nowait()
        except Empty:
            return None

    def in_thread(self, token: object, function: Callable[[], Any]) -> None:
        """Call ``function`` in a thread of its own."""

        def call() -> None:
            try:
                value = function()
            except BaseException as error:  # noqa: BLE001 - handed over whole
                self.put(token, Outcome(error=error))
            else:
                self.put(token, Outcome(value))

        thread = threading.Thread(
            target=self._context.copy().run, args=(call,), name="pronk-tool", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # no more threads, or the interpreter ends
            self.put(token, Outcome(error=error))

    @abstractmethod
    def in_loop(self, token: object, function: Callable[[], Awaitable[Any]]) -> Callable[[], None]:
        """Await what ``function`` returns, in an event loop; return what cancels that."""

    @abstractmethod
    def close(self) -> None:
        """Give up what still runs."""


class ThreadWorkers(Workers):
    """For a thread that blocks. Async tools get an event loop, which lasts as long as the run."""

    def __init__(self) -> None:
        super().__init__()
        self._loop: LoopThread | None = None

    def in_loop(self, token: object, function: Callable[[], Awaitable[Any]]) -> Callable[[], None]:
        """Run it in the loop of this run."""
        if self._loop is None:
            from pronk._tool_loop import LoopThread

            self._loop = LoopThread()
        return self._loop.spawn(
            function, lambda outcome: self.put(token, outcome), self._context.copy()
        )

    def wait(self, seconds: float | None) -> None:
        """Wait until there is something to take, so many seconds at most."""
        try:
            self._ahead.append(self._inbox.get(timeout=seconds))
        except Empty:
            return

    def close(self) -> None:
        """Stop the loop; its tasks are cancelled."""
        if self._loop is not None:
            self._loop.stop()


class LoopWorkers(Workers):
    """For a task in an event loop."""

    def __init__(self, hub: Hub) -> None:
        super().__init__()
        self.hub = hub
        self._call_soon = hub.threadsafe()
        self._signal: Signal | None = None

    def put(self, token: object, outcome: Outcome) -> None:
        """Hand over an outcome and wake the task that waits."""
        super().put(token, outcome)
        self._call_soon(self._wake)

    def _wake(self) -> None:
        if self._signal is not None and not self._signal.done():
            self._signal.set_result(None)

    def in_loop(self, token: object, function: Callable[[], Awaitable[Any]]) -> Callable[[], None]:
        """Run it as a task of the running loop."""
        cancel = self.hub.spawn(
            function, lambda outcome: self.put(token, outcome), self._context.copy()
        )
        # A stream may be closed or dropped by another thread.
        return lambda: self._call_soon(cancel)

    async def wait_async(self, seconds: float | None) -> None:
        """Wait until there is something to take, so many seconds at most."""
        # Looked at after the signal is there: what comes later wakes it.
        self._signal = self.hub.new_signal()
        try:
            if self._inbox.empty():
                await self.hub.wait(self._signal, seconds)
        finally:
            self._signal = None

    def close(self) -> None:
        """Do nothing: tasks are cancelled one by one."""
