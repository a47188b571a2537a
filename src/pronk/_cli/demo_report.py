"""The demo's summary, and whether its figures add up."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

from pronk._cli.demo_agent import State, Tally

if TYPE_CHECKING:
    from rich.console import Console

    import pronk


@dataclass(frozen=True)
class Check:
    """A figure that is known from two sides.

    Attributes:
        what: The figure.
        got: What the scheduler, or the agents, counted.
        expected: What it has to be, in words.
        ok: Whether it is.
    """

    what: str
    got: int
    expected: str
    ok: bool


@dataclass(frozen=True)
class Report:
    """All figures of one demo."""

    tallies: list[Tally]
    statistics: pronk.Statistics
    turns: int
    peak: int
    wall_seconds: float

    @property
    def checks(self) -> list[Check]:
        """Compare what the agents counted with what the scheduler counted."""
        counted = self.statistics
        calls = len(self.tallies) * self.turns
        high = counted.high_water
        return [
            _equal("agents done", self._count_done(), "agents", len(self.tallies)),
            _equal("permits handed out", counted.acquired, "calls", calls),
            _equal("permits given back", counted.released, "handed out", counted.acquired),
            _equal("permits still in use", counted.active, "at the end", 0),
            _equal("agents still waiting", counted.waiting, "at the end", 0),
            Check(
                "most permits at once",
                high,
                f"at least {self.peak} (seen by the agents), at most {counted.max_concurrent}",
                self.peak <= high <= counted.max_concurrent,
            ),
            _equal("generations completed", counted.completed, "calls", calls),
            *(
                _equal(what, total, "summed over the agents", self._sum(field))
                for what, total, field in (
                    ("prompt tokens", counted.prompt_tokens, "prompt_tokens"),
                    ("prompt tokens reused", counted.reused_tokens, "cached_tokens"),
                    ("tokens generated", counted.completion_tokens, "completion_tokens"),
                )
            ),
        ]

    @property
    def sound(self) -> bool:
        """Whether every agent finished and every figure adds up."""
        return all(check.ok for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible values; times in seconds."""
        counted = self.statistics
        return {
            "agents": [
                asdict(tally)
                | {"state": tally.state.value, "tokens_per_second": tally.tokens_per_second}
                for tally in self.tallies
            ],
            "totals": {
                "prompt_tokens": self._sum("prompt_tokens"),
                "cached_tokens": self._sum("cached_tokens"),
                "completion_tokens": self._sum("completion_tokens"),
                "wall_seconds": self.wall_seconds,
                "tokens_per_second": self._tokens_per_second(),
            },
            "permits": {
                "layout": counted.layout,
                "n_ctx": counted.n_ctx,
                "max_concurrent": counted.max_concurrent,
                "high_water": counted.high_water,
                "acquired": counted.acquired,
                "wait_seconds": counted.wait_seconds,
            },
            "checks": [asdict(check) for check in self.checks],
            "sound": self.sound,
        }

    def print_to(self, console: Console) -> None:
        """Print the summary for people."""
        console.print(self._agents_table())
        console.print(self._totals_table())
        for tally in self.tallies:
            if tally.error is not None:
                console.print(f"{tally.name}: {tally.error}", style="red", markup=False)
        wrong = [check for check in self.checks if not check.ok]
        for check in wrong:
            console.print(
                f"{check.what}: got {check.got}, expected {check.expected}",
                style="bold red",
                markup=False,
            )
        if not wrong:
            console.print(
                f"All {len(self.tallies)} agents finished and the figures add up.", style="green"
            )

    def _agents_table(self) -> Table:
        table = Table(title="Agents", title_justify="left", show_footer=True)
        table.add_column("agent", "total")
        sums = (self._sum(field) for field in _COLUMNS.values())
        for heading, total in zip(_COLUMNS, sums, strict=True):
            table.add_column(heading, str(total), justify="right")
        waited = sum(tally.waited_seconds for tally in self.tallies)
        table.add_column("tokens/s", justify="right")
        table.add_column("waited", f"{waited:.1f} s", justify="right")
        for tally in self.tallies:
            table.add_row(
                tally.name,
                *(str(getattr(tally, field)) for field in _COLUMNS.values()),
                f"{tally.tokens_per_second:.1f}",
                f"{tally.waited_seconds:.1f} s",
            )
        return table

    def _totals_table(self) -> Table:
        counted = self.statistics
        reused, prompted = counted.reused_tokens, counted.prompt_tokens
        share = 100 * reused / prompted if prompted else 0
        mean = counted.wait_seconds / counted.acquired if counted.acquired else 0
        table = Table.grid(padding=(0, 2))
        table.add_row("permits", f"{counted.max_concurrent}, layout {counted.layout}")
        table.add_row("most at once", str(counted.high_water))
        table.add_row("acquired", f"{counted.acquired}, given back {counted.released}")
        table.add_row("waiting", f"{counted.wait_seconds:.1f} s in all, {mean:.2f} s on average")
        table.add_row("prompt tokens", f"{prompted}, of which reused {reused} ({share:.0f} %)")
        table.add_row("generated", f"{counted.completion_tokens} tokens")
        table.add_row(
            "took", f"{self.wall_seconds:.1f} s: {self._tokens_per_second():.1f} tokens/s in all"
        )
        return table

    def _count_done(self) -> int:
        return sum(tally.state is State.DONE for tally in self.tallies)

    def _tokens_per_second(self) -> float:
        return self._sum("completion_tokens") / self.wall_seconds

    def _sum(self, field: str) -> int:
        return sum(int(getattr(tally, field)) for tally in self.tallies)


_COLUMNS = {
    "turns": "turns_finished",
    "prompt": "prompt_tokens",
    "reused": "cached_tokens",
    "generated": "completion_tokens",
}


def _equal(what: str, got: int, of_what: str, expected: int) -> Check:
    return Check(what, got, f"{expected} ({of_what})", got == expected)
