"""The hub of a trio run, also when anyio drives it."""

from __future__ import annotations

import contextvars
import math
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, ref

import trio

from pronk._hub import Hub, Signal
from pronk._tool_workers import Outcome


class _TrioSignal:
    """An event with the face of a future."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = trio.Event()

    def done(self) -> bool:
        return self._event.is_set()

    def set_result(self, result: None, /) -> None:
        self._event.set()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._event.wait().__await__()


class TrioHub(Hub):
    """Reads the mailbox in a system task, which ends with the run."""

    def new_signal(self) -> _TrioSignal:
        """Return a signal of the running trio."""
        return _TrioSignal()

    async def next_turn(self) -> None:
        """Let the other tasks of the run run."""
        await trio.lowlevel.checkpoint()

    async def wait(self, signal: Signal, seconds: float | None) -> None:
        """Wait in a scope with a deadline."""
        with trio.move_on_after(math.inf if seconds is None else seconds):
            await signal

    def threadsafe(self) -> Callable[[Callable[[], object]], None]:
        """Use the token of the running trio."""
        token = trio.lowlevel.current_trio_token()

        def call_soon(function: Callable[[], object]) -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(function)

        return call_soon

    def spawn(
        self,
        function: Callable[[], Awaitable[Any]],
        done: Callable[[Outcome], None],
        context: contextvars.Context,
    ) -> Callable[[], None]:
        """Make a system task, which needs no nursery; it ends with the run at the latest."""
        scope = trio.CancelScope()

        async def run() -> None:
            # Whatever leaves a system task ends the whole run, so nothing does.
            with suppress(BaseException), scope:
                try:
                    value = await function()
                except BaseException as error:
                    done(Outcome(error=error))
                    raise
                done(Outcome(value))

        trio.lowlevel.spawn_system_task(run, context=context)
        return scope.cancel

    async def read(self) -> None:
        """Deliver what the mailbox brings until the run ends."""
        try:
            while True:
                await trio.lowlevel.wait_readable(self.mailbox.fd)
                self.deliver()
        finally:
            self.abandon()


_hubs: WeakKeyDictionary[trio.lowlevel.TrioToken, ref[TrioHub]] = WeakKeyDictionary()


def current_hub() -> TrioHub:
    """Return the hub of the running trio, made at its first use."""
    token = trio.lowlevel.current_trio_token()
    known = _hubs.get(token)
    hub = known() if known is not None else None
    if hub is None:
        hub = TrioHub()
        trio.lowlevel.spawn_system_task(hub.read)
        _hubs[token] = ref(hub)
    return hub
