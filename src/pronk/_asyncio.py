"""The hub of an asyncio event loop, of the standard library's or of uvloop's."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, ref

from pronk._hub import Hub, Signal
from pronk._tool_workers import Outcome

# Loops keep weak references only.
_tasks: set[asyncio.Task[None]] = set()


def spawn_task(
    function: Callable[[], Awaitable[Any]],
    done: Callable[[Outcome], None],
    context: contextvars.Context,
) -> Callable[[], None]:
    """Await what ``function`` returns in a task of the running loop; return what cancels it."""

    async def run() -> None:
        try:
            value = await function()
        except BaseException as error:
            done(Outcome(error=error))
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            done(Outcome(value))

    # Python 3.10 has no context argument; the task copies the context that it is made in.
    task = context.run(asyncio.get_running_loop().create_task, run())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)

    def cancel() -> None:
        task.cancel()

    return cancel


class AsyncioHub(Hub):
    """Reads the mailbox when the loop says that it rang."""

    def new_signal(self) -> asyncio.Future[None]:
        """Return a future of the running loop."""
        return asyncio.get_running_loop().create_future()

    async def next_turn(self) -> None:
        """Let the other tasks of the loop run."""
        await asyncio.sleep(0)

    async def wait(self, signal: Signal, seconds: float | None) -> None:
        """Wait with a timer of the running loop."""
        if seconds is None:
            await signal
            return

        def end() -> None:
            if not signal.done():
                signal.set_result(None)

        timer = asyncio.get_running_loop().call_later(seconds, end)
        try:
            await signal
        finally:
            timer.cancel()

    def threadsafe(self) -> Callable[[Callable[[], object]], None]:
        """Use the running loop."""
        loop = asyncio.get_running_loop()

        def call_soon(function: Callable[[], object]) -> None:
            with suppress(RuntimeError):  # closed
                loop.call_soon_threadsafe(function)

        return call_soon

    def spawn(
        self,
        function: Callable[[], Awaitable[Any]],
        done: Callable[[Outcome], None],
        context: contextvars.Context,
    ) -> Callable[[], None]:
        """Make a task of the running loop."""
        return spawn_task(function, done, context)


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
