"""The hub of an asyncio event loop, of the standard library's or of uvloop's."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary, ref

from pronk._hub import Hub


class AsyncioHub(Hub):
    """Reads the mailbox when the loop says that it rang."""

    def new_signal(self) -> asyncio.Future[None]:
        """Return a future of the running loop."""
        return asyncio.get_running_loop().create_future()

    async def next_turn(self) -> None:
        """Let the other tasks of the loop run."""
        await asyncio.sleep(0)


class _Reader:
    """What the loop calls when the mailbox rings.

    The loop alone keeps it, and drops it when it is closed: that is how we learn of it.
    """

    __slots__ = ("_hub",)

    def __init__(self, hub: AsyncioHub) -> None:
        self._hub = hub

    def __call__(self) -> None:
        self._hub.deliver()

    def __del__(self) -> None:
        self._hub.abandon()


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[AsyncioHub]] = WeakKeyDictionary()


def current_hub() -> AsyncioHub:
    """Return the hub of the running loop, made at its first use."""
    loop = asyncio.get_running_loop()
    known = _hubs.get(loop)
    hub = known() if known is not None else None
    if hub is None:
        hub = AsyncioHub()
        loop.add_reader(hub.mailbox.fd, _Reader(hub))
        hub.mailbox.attach(loop)
        _hubs[loop] = ref(hub)
    return hub
