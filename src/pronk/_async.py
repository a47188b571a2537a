"""Waiting in an event loop for permits and generations.

The core posts keys to the mailbox of the loop and rings its file descriptor; the loop, which
watches that, wakes the waiters behind the keys. No thread waits for anything, and nothing here
outlives its loop. `pronk._asyncio` and `pronk._trio` have what is particular to each kind of loop.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, ref

from pronk import _asyncio
from pronk._core import enqueue, hold, listen, take, take_delta
from pronk._errors import DeadlockError, Error

if TYPE_CHECKING:
    from pronk._core import (
        Acquisition,
        ChatDelta,
        Completion,
        Generation,
        InferencePermit,
        Ticket,
    )
    from pronk._hub import Hub, Signal


def current_hub() -> Hub:
    """Return the hub of the running event loop, whatever kind it is."""
    # Only a program that imported trio can run in it.
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_task():
        from pronk import _trio

        return _trio.current_hub()
    return _asyncio.current_hub()


class _TicketWaiter:
    """One task that waits for one ticket."""

    __slots__ = ("__weakref__", "signal", "ticket")

    def __init__(self, ticket: Ticket, signal: Signal) -> None:
        self.ticket = ticket
        self.signal = signal

    def wake(self) -> None:
        if not self.signal.done():
            self.signal.set_result(None)

    def abandon(self) -> None:
        self.ticket.cancel()


# An async generator that was left by `break` is closed by the loop a turn or two later, and gives
# back its permit only then: nothing hangs, though the task seems to hold all permits.
_TURNS = 4


async def _queue(acquisition: Acquisition, hub: Hub) -> Ticket:
    for _ in range(_TURNS):
        with suppress(DeadlockError):
            return enqueue(acquisition)
        await hub.next_turn()
    return enqueue(acquisition)


async def wait_for_permit(acquisition: Acquisition) -> InferencePermit:
    """Wait for a permit; whatever ends the wait early hands it to the next."""
    hub = current_hub()
    ticket = await _queue(acquisition, hub)
    try:
        waiter = _TicketWaiter(ticket, hub.new_signal())
        ticket.listen(hub.mailbox, hub.add(waiter))
        await waiter.signal
        return ticket.take()
    except BaseException:
        ticket.cancel()
        raise


async def enter(acquisition: Acquisition) -> InferencePermit:
    """Wait like `wait_for_permit`, and leave the release to ``acquisition``."""
    permit = await wait_for_permit(acquisition)
    hold(acquisition, permit)
    return permit


class _StreamWaiter:
    """All tasks of one loop that wait for one generation."""

    __slots__ = ("__weakref__", "_generation", "_signals", "hub")

    def __init__(self, generation: Generation, hub: Hub) -> None:
        self.hub = hub
        self._generation = ref(generation)
        self._signals: set[Signal] = set()

    @property
    def busy(self) -> bool:
        return bool(self._signals)

    async def wait(self) -> None:
        signal = self.hub.new_signal()
        self._signals.add(signal)
        try:
            await signal
        finally:
            self._signals.discard(signal)

    def wake(self) -> None:
        for signal in self._signals:
            if not signal.done():
                signal.set_result(None)

    def abandon(self) -> None:
        generation = self._generation()
        if self.busy and generation is not None:
            generation.cancel()
        self._signals.clear()


_streams: WeakKeyDictionary[Generation, _StreamWaiter] = WeakKeyDictionary()


def _waiter_for(generation: Generation) -> _StreamWaiter:
    hub = current_hub()
    waiter = _streams.get(generation)
    if waiter is None or waiter.hub is not hub:
        if waiter is not None and waiter.busy:
            raise Error(
                "generation: got a wait in a second event loop, expected all waits in one, "
                "wait for it in the loop that already does"
            )
        waiter = _streams[generation] = _StreamWaiter(generation, hub)
        # Posts at once if there is something already, so nothing can be missed in between.
        listen(generation, hub.mailbox, hub.add(waiter))
    return waiter


async def next_piece(generation: Generation) -> str:
    """Wait for the next text of ``generation``; raises StopAsyncIteration at its end."""
    waiter = _waiter_for(generation)
    while True:
        await waiter.wait()
        piece = take(generation)
        if piece is not None:
            return piece


async def next_delta(generation: Generation) -> ChatDelta:
    """Wait for the next delta of a chat; raises StopAsyncIteration at its end."""
    waiter = _waiter_for(generation)
    while True:
        await waiter.wait()
        delta = take_delta(generation)
        if delta is not None:
            return delta


async def wait_for_result(generation: Generation) -> Completion:
    """Wait for the end. As with a task, cancelling the wait cancels what is waited for."""
    waiter = _waiter_for(generation)
    try:
        while not generation.done:
            await waiter.wait()
    except BaseException:
        generation.cancel()
        raise
    return generation.result()
