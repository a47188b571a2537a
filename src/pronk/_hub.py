"""What every kind of event loop needs to wait: a mailbox, and who waits for which key in it.

Tasks that wait for permits are known to the mailbox itself, in C++: there may be thousands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from pronk._core import Mailbox

if TYPE_CHECKING:
    import contextvars

    from pronk._tool_workers import Outcome


class Waiter(Protocol):
    """Someone who waits for a key."""

    def wake(self) -> None:
        """Something became ready."""

    def abandon(self) -> None:
        """The loop is gone: give up what was waited for."""


class Signal(Protocol):
    """Awaited once, by one task, until it is set: an `asyncio.Future` or its like."""

    def done(self) -> bool:
        """Return whether the wait is over."""

    def set_result(self, result: None, /) -> None:
        """End the wait."""

    def __await__(self) -> Generator[Any, Any, None]: ...


class Hub(ABC):
    """One per loop.

    A waiter is kept by the coroutine that waits, not by the hub, and the hub is kept by the loop,
    not by us: so none of them outlives the other.
    """

    def __init__(self) -> None:
        self.mailbox = Mailbox()
        self._waiters: WeakValueDictionary[int, Waiter] = WeakValueDictionary()

    @abstractmethod
    def new_signal(self) -> Signal:
        """Return a signal for the running task."""

    @abstractmethod
    async def next_turn(self) -> None:
        """Let the other tasks of the loop run."""

    @abstractmethod
    async def wait(self, signal: Signal, seconds: float | None) -> None:
        """Wait for a signal, so many seconds at most."""

    @abstractmethod
    def threadsafe(self) -> Callable[[Callable[[], object]], None]:
        """Return what calls a function in the loop, if it still runs. Any thread may call that."""

    @abstractmethod
    def spawn(
        self,
        function: Callable[[], Awaitable[Any]],
        done: Callable[[Outcome], None],
        context: contextvars.Context,
    ) -> Callable[[], None]:
        """Await what ``function`` returns, in a task; return what cancels that."""

    def add(self, waiter: Waiter) -> int:
        """Return the key that wakes ``waiter``, for as long as somebody keeps it alive."""
        key = self.mailbox.new_key()
        self._waiters[key] = waiter
        return key

    def deliver(self) -> None:
        """Wake the waiters of all keys that were posted."""
        for key in self.mailbox.deliver():
            waiter = self._waiters.get(key)
            if waiter is not None:
                waiter.wake()

    def abandon(self) -> None:
        """Give up for all waiters."""
        self.mailbox.abandon()
        for waiter in list(self._waiters.values()):
            waiter.abandon()
