"""What the demo shows while it runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import queue
import time
from typing import TYPE_CHECKING, Protocol

from rich.live import Live
from rich.table import Table

from pronk._cli.demo_agent import State, Tally

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console
    from typing_extensions import Self

    import pronk

_STYLES = {
    State.IDLE: "dim",
    State.WAITS: "yellow",
    State.RUNS: "bold green",
    State.TOOL: "cyan",
    State.DONE: "dim green",
    State.FAILED: "bold red",
    State.STOPPED: "red",
}


class Board(Protocol):
    """A display that the main thread refreshes while the agents run."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def changed(self, tally: Tally) -> None:
        """Take note that an agent changed its state. Called on the agent's thread."""

    def refresh(self) -> None:
        """Show the present state. Called on the main thread only."""


def new_board(
    console: Console, tallies: list[Tally], turns: int, scheduler: pronk.InferenceScheduler
) -> Board:
    """Return the board that suits where ``console`` writes to."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveBoard(console, tallies, turns, scheduler)
    return PlainBoard(console, turns)


class LiveBoard:
    """A table that is drawn again in place."""

    def __init__(
        self,
        console: Console,
        tallies: list[Tally],
        turns: int,
        scheduler: pronk.InferenceScheduler,
    ) -> None:
        self._tallies = tallies
        self._turns = turns
        self._scheduler = scheduler
        self._started = time.monotonic()
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.refresh()
        self._live.__exit__(kind, error, traceback)

    def changed(self, tally: Tally) -> None:
        """Do nothing: every refresh draws all agents."""

    def refresh(self) -> None:
        """Draw the table."""
        self._live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        table = Table(caption=self._caption(), caption_justify="left")
        for heading in ("agent", "subject", "state"):
            table.add_column(heading)
        for heading in ("turn", "tokens", "tokens/s", "waited"):
            table.add_column(heading, justify="right")
        for tally in self._tallies:
            table.add_row(
                tally.name,
                tally.topic,
                f"[{_STYLES[tally.state]}]{tally.state.value}[/]",
                f"{tally.turn}/{self._turns}",
                str(tally.tokens),
                f"{tally.tokens_per_second:.1f}",
                f"{tally.waited_seconds:.1f} s",
            )
        return table

    def _caption(self) -> str:
        scheduler = self._scheduler
        tokens = sum(tally.tokens for tally in self._tallies)
        seconds = time.monotonic() - self._started
        return (
            f"{scheduler.active_count} of {scheduler.max_concurrent} permits in use, "
            f"{scheduler.waiting_count} agents wait; "
            f"{tokens} tokens in {seconds:.1f} s, {tokens / seconds:.1f} tokens/s"
        )


class PlainBoard:
    """A line for every change of state, for logs and pipes."""

    def __init__(self, console: Console, turns: int) -> None:
        self._console = console
        self._turns = turns
        self._started = time.monotonic()
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not isinstance(error, BrokenPipeError):
            self.refresh()

    def changed(self, tally: Tally) -> None:
        """Queue a line: the agent must not stumble over a broken pipe."""
        seconds = time.monotonic() - self._started
        self._lines.put(
            f"{seconds:7.2f} s  {tally.name:<9} turn {tally.turn}/{self._turns}  "
            f"{tally.state.value:<7} {tally.tokens:>5} tokens"
        )

    def refresh(self) -> None:
        """Print the lines that have come in."""
        while True:
            try:
                line = self._lines.get_nowait()
            except queue.Empty:
                return
            self._console.print(line, markup=False, soft_wrap=True)
