"""The hub of an asyncio event loop, of the standard library's or of uvloop's."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

from pronk._core import Mailbox


class Waiter(Protocol):
    """Someone who waits for a key."""

    def wake(self) -> None:
        """Something became ready."""

    def abandon(self) -> None:
        """The loop is gone: give up what was waited for."""


class Hub:
    """One per loop: its mailbox, and who waits for which key.

    A waiter is kept by the coroutine that waits, not by the hub, and the hub is kept by the loop,
    not by us: so none of them outlives the other.
    """

    def __init__(self) -> None:
        self.mailbox = Mailbox()
        self._waiters: WeakValueDictionary[int, Waiter] = WeakValueDictionary()
        self._keys = count(1)

    def new_future(self) -> asyncio.Future[None]:
        """Return a future of the running loop."""
        return asyncio.get_running_loop().create_future()

    def add(self, waiter: Waiter) -> int:
        """Return the key that wakes ``waiter``, for as long as somebody keeps it alive."""
        key = next(self._keys)
        self._waiters[key] = waiter
        return key

    def deliver(self) -> None:
        """Wake the waiters of all keys that were posted."""
        for key in self.mailbox.drain():
            waiter = self._waiters.get(key)
            if waiter is not None:
                waiter.wake()

    def abandon(self) -> None:
        """Give up for all waiters."""
        for waiter in list(self._waiters.values()):
            waiter.abandon()


class _Reader:
    """What the loop calls when the mailbox rings.

    The loop alone keeps it, and drops it when it is closed: that is how we learn of it.
    """

    __slots__ = ("_hub",)

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def __call__(self) -> None:
        self._hub.deliver()

    def __del__(self) -> None:
        self._hub.abandon()


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[Hub]] = WeakKeyDictionary()


def current_hub() -> Hub:
    """Return the hub of the running loop, made at its first use."""
    loop = asyncio.get_running_loop()
    known = _hubs.get(loop)
    hub = known() if known is not None else None
    if hub is None:
        hub = Hub()
        loop.add_reader(hub.mailbox.fd, _Reader(hub))
        _hubs[loop] = ref(hub)
    return hub
