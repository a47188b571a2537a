"""An abstract model of the gate, and a search through everything that it can do.

Each step is one critical section of the real code (one hold of the gate's mutex, of a
generation's or of the inbox's), so that all interleavings of steps are all that threads can do to
each other. The search is breadth first and complete; what it finds wrong it reports with the
shortest way there.

Clients, up to a few at a time:
  block   a thread in acquire(timeout): enqueues, sleeps, may time out, takes, releases
  task    an awaiting task: enqueues, looks, takes, releases, or drops its ticket at any moment
  try     try_acquire()
  queued  a queued generation: granted by the gate, run and ended by the loop, cancelled any time
  close   close(): the gate first, then the loop

A model that cannot fail proves nothing: `broken` leaves one rule out, and the search has to notice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple


class Client(NamedTuple):
    """What one client is about to do, and its ticket."""

    kind: str
    at: str = "start"
    ticket: str = "none"  # none, waiting, granted, taken, cancelled, closed
    woken: bool = False  # block: notified while it slept
    asked: bool = False  # queued: cancel was requested
    ending: bool = False  # queued: the end has begun
    done: bool = False  # queued: the end is there to see
    has_end: bool = False  # queued: the end gives a permit back
    permit: bool = False  # queued: a permit is out for it
    after: str = ""  # queued: what the gate left to run outside its mutex, or the loop's end
    also: str = ""  # queued: the end by a close() that has given the loop up
    place: str = ""  # queued: with the loop, "" or inbox


class State(NamedTuple):
    """Everything: the gate, the loop, the clients."""

    clients: tuple[Client, ...]
    active: int = 0
    queue: tuple[int, ...] = ()
    closed: bool = False
    stop: bool = False  # the loop takes no more work
    ended: bool = False  # the loop has ended everything


class WrongError(Exception):
    """A rule of the gate does not hold."""


class Gate:
    """The steps, as changes of a state."""

    def __init__(self, permits: int, broken: str = "") -> None:
        self.permits = permits
        self.broken = broken

    # ---- the gate's critical sections

    def set(self, state: State, i: int, **changes: Any) -> State:
        clients = list(state.clients)
        clients[i] = clients[i]._replace(**changes)
        return state._replace(clients=tuple(clients))

    def decide(self, state: State, i: int, ticket: str) -> State:
        client = state.clients[i]
        state = self.set(state, i, ticket=ticket, woken=client.at == "asleep")
        if client.kind == "queued" and ticket == "granted":
            return self.set(state, i, ticket="taken", permit=True, after="grant")
        if client.kind == "queued" and ticket == "closed":
            return self.set(state, i, after="close")
        return state

    def grant(self, state: State) -> State:
        while state.queue and state.active < self.permits:
            first, *rest = state.queue
            if self.broken == "last in first out":
                *rest, first = state.queue
            if first != state.queue[0]:
                raise WrongError(f"client {first} overtakes client {state.queue[0]}")
            state = state._replace(queue=tuple(rest), active=state.active + 1)
            state = self.decide(state, first, "granted")
        return state

    def enqueue(self, state: State, i: int) -> State:
        if state.closed:
            return self.set(state, i, at="done", ticket="closed", done=True)
        state = self.set(state, i, ticket="waiting", at="waiting")
        return self.grant(state._replace(queue=(*state.queue, i)))

    def release(self, state: State) -> State:
        state = state._replace(active=state.active - 1)
        return state if self.broken == "release wakes nobody" else self.grant(state)

    def cancel(self, state: State, i: int) -> tuple[State, bool]:
        """Returns the state and whether the ticket was still waiting."""
        client = state.clients[i]
        if client.ticket == "waiting":
            state = state._replace(queue=tuple(j for j in state.queue if j != i))
            return self.grant(self.set(state, i, ticket="cancelled")), True
        if client.ticket == "granted":
            state = self.set(state, i, ticket="cancelled")
            return (state if self.broken == "cancel keeps a grant" else self.release(state)), False
        return state, False

    # ---- the clients

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for i, client in enumerate(state.clients):
            for name, after in getattr(self, client.kind)(state, i, client):
                yield f"{i} {client.kind}: {name}", after
            if client.kind == "queued":
                for name, after in self.generation(state, i, client):
                    yield f"{i} {client.kind}: {name}", after
        if state.stop and not state.ended:
            rest = [c for c in state.clients if c.kind == "queued" and c.place]
            if not rest:
                yield "loop: ends", state._replace(ended=True)

    def block(self, state: State, i: int, client: Client) -> Iterator[tuple[str, State]]:
        match client.at:
            case "start":
                yield "enqueue", self.enqueue(state, i)
            case "waiting" if client.ticket != "waiting":
                yield "sees a decision", self.set(state, i, at="decided")
            case "waiting":
                if self.broken == "looks and sleeps in two steps":
                    yield "looks", self.set(state, i, at="drowsy")
                else:
                    yield "looks and sleeps", self.set(state, i, at="asleep", woken=False)
            case "drowsy":
                yield "sleeps", self.set(state, i, at="asleep", woken=False)
            case "asleep":
                if client.woken:
                    yield "wakes", self.set(state, i, at="waiting")
                if client.asked:  # has a timeout, which may come at any time
                    late = "late" if client.ticket == "waiting" else "decided"
                    yield "time is over", self.set(state, i, at=late)
            case "late":
                after, _ = self.cancel(state, i)
                yield "cancel", self.set(after, i, at="done")
            case "decided" if client.ticket == "granted":
                yield "take", self.set(state, i, ticket="taken", at="holding")
            case "decided":
                yield "closed", self.set(state, i, at="done")
            case "holding":
                yield "release", self.set(self.release(state), i, at="done")

    def task(self, state: State, i: int, client: Client) -> Iterator[tuple[str, State]]:
        match client.at:
            case "start":
                yield "enqueue", self.enqueue(state, i)
            case "waiting":
                after, _ = self.cancel(state, i)
                yield "drop", self.set(after, i, at="done")
                if client.ticket == "granted":
                    yield "take", self.set(state, i, ticket="taken", at="holding")
            case "holding":
                yield "release", self.set(self.release(state), i, at="done")

    def try_(self, state: State, i: int, client: Client) -> Iterator[tuple[str, State]]:
        if client.at == "start":
            free = state.active < self.permits and not state.closed
            if self.broken == "barges in" and not free and state.queue and not state.closed:
                raise WrongError("try_acquire gets what a waiter waits for")
            if free and not state.queue:
                state = state._replace(active=state.active + 1)
                yield "gets one", self.set(state, i, at="holding", ticket="taken")
            else:
                yield "gets none", self.set(state, i, at="done")
        elif client.at == "holding":
            yield "release", self.set(self.release(state), i, at="done")

    def queued(self, state: State, i: int, client: Client) -> Iterator[tuple[str, State]]:
        """The consumer's side of a queued generation."""
        match client.at:
            case "start":
                yield "enqueue", self.enqueue(state, i)
            case "waiting":
                if client.done:
                    yield "sees the end", self.set(state, i, at="done")
                elif not client.ending:
                    yield "asks to cancel", self.set(state, i, asked=True, at="cancelling")
            case "cancelling":
                after, was_waiting = self.cancel(state, i)
                if was_waiting:
                    yield "leaves the queue", self.set(after, i, ending=True, at="finishing")
                else:
                    yield "pokes the loop", self.set(after, i, at="cancelled")
            case "finishing":
                yield "finish", self.set(state, i, done=True, at="cancelled")
            case "cancelled" if client.done:
                yield "sees the end", self.set(state, i, at="done")

    def generation(self, state: State, i: int, client: Client) -> Iterator[tuple[str, State]]:
        """What others do for it: the granting or closing thread, and the loop."""
        match client.after:
            case "grant":
                if client.ending:
                    raise WrongError("a generation that has ended gets a permit")
                yield "when_ended", self.set(state, i, has_end=True, after="submit")
            case "submit" if state.stop and self.broken == "stop swallows":
                yield "submit, lost", self.set(state, i, after="")
            case "submit" if state.stop:
                yield "submit, refused", self.set(state, i, after="end")
            case "submit":
                yield "submit", self.set(state, i, place="inbox", after="")
            case "close":
                yield "on_close", self.set(state, i, after="end")
        # The loop ends it: it is complete, it was cancelled, or everything ends.
        if client.place == "inbox":
            yield "loop takes its end up", self.set(state, i, place="", after="end")
        for who, at in (("after", client.after), ("also", client.also)):
            match at:
                case "end" if client.ending and self.broken != "ends twice":
                    yield "has ended already", self.set(state, i, **{who: ""})
                case "end":
                    yield "end begins", self.set(state, i, ending=True, **{who: "give back"})
                case "give back":
                    after = self.set(state, i, has_end=False, permit=False, **{who: "show"})
                    yield "gives back", self.release(after) if client.has_end else after
                case "show":
                    if client.done:
                        raise WrongError("a generation ends twice")
                    yield "shows its end", self.set(state, i, done=True, **{who: ""})

    def close(self, state: State, i: int, client: Client) -> Iterator[tuple[str, State]]:
        match client.at:
            case "start":
                after = state._replace(closed=True, queue=())
                for j in state.queue:
                    after = self.decide(after, j, "closed")
                yield "closes the gate", self.set(after, i, at="loop")
            case "loop":
                yield "stops the loop", self.set(state._replace(stop=True), i, at="join")
            case "join" if state.ended:
                yield "sees its end", self.set(state, i, at="done")
            case "join":
                after = self.set(state._replace(ended=True), i, at="done")
                for j, other in enumerate(state.clients):
                    if other.place or other.after in ("end", "give back", "show"):
                        after = self.set(after, j, also="end")
                yield "gives the loop up", after

    # ---- what always holds

    def check(self, state: State) -> None:
        holders = sum(
            c.permit if c.kind == "queued" else c.ticket == "granted" or c.at == "holding"
            for c in state.clients
        )
        if state.active != holders:
            raise WrongError(f"{state.active} permits are out, {holders} are held")
        if not 0 <= state.active <= self.permits:
            raise WrongError(f"{state.active} permits of {self.permits} are out")
        if state.queue and state.active < self.permits:
            raise WrongError("somebody waits beside a free permit")

    def check_end(self, state: State) -> None:
        """In a state from which nothing can happen any more."""
        for i, client in enumerate(state.clients):
            if client.at != "done":
                raise WrongError(f"client {i} is stuck: {client}")
        if state.active or state.queue:
            raise WrongError("a permit is lost")


def search(kinds: Sequence[str], permits: int, *, broken: str = "", timeouts: bool = True) -> int:
    """Visit every state; return how many there are. Raises WrongError with the way to a fault."""
    gate = Gate(permits, broken)
    gate.__dict__["try"] = gate.try_
    start = State(tuple(Client(kind, asked=kind == "block" and timeouts) for kind in kinds))
    came_from: dict[State, tuple[State, str] | None] = {start: None}
    todo = deque([start])
    while todo:
        state = todo.popleft()
        try:
            gate.check(state)
            stuck = True
            for name, after in gate.steps(state):
                stuck = False
                if after not in came_from:
                    came_from[after] = (state, name)
                    todo.append(after)
            if stuck:
                gate.check_end(state)
        except WrongError as wrong:
            way: list[str] = []
            at: State | None = state
            while at is not None and (step := came_from[at]) is not None:
                at, name = step
                way.append(name)
            raise WrongError("\n  ".join([str(wrong), "after", *reversed(way)])) from None
    return len(came_from)
