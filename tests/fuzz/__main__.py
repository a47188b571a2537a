"""The command line of the fuzzer: `make fuzz ARGS="--help"`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fuzz import kinds
from fuzz.driver import Campaign, Report, replay
from fuzz.minimise import minimise

FOLDER = Path(__file__).resolve().parents[2] / "build" / "fuzz"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
# Where nobody looks, tables get the width that they need.
out = Console(highlight=False, width=None if sys.stdout.isatty() else 240)


@app.command()
def main(
    kind: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(kinds.NAMES)}; all without any.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the mutants; a fresh one without.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Mutants of each kind.")] = None,
    minutes: Annotated[float | None, typer.Option(help="For each kind.")] = None,
    first: Annotated[int, typer.Option(help="Number of the first mutant.")] = 0,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes at a time; one per CPU without.")
    ] = None,
    hang: Annotated[
        float, typer.Option(help="Seconds after which a mutant counts as hung.")
    ] = 60.0,
    folder: Annotated[Path, typer.Option(help="Where findings are saved.")] = FOLDER,
    shrink: Annotated[bool, typer.Option(help="Make what was found shorter.")] = True,
    replay_: Annotated[
        Path | None, typer.Option("--replay", help="Try one mutant that was saved.")
    ] = None,
) -> None:
    """Try mutants of model files, grammars, schemas, templates, chats, replies, prompts and calls.

    Without --count and --minutes, 1,000 of each kind. Ends with 1 where there are findings that the
    README does not list as limits.
    """
    names = kind or list(kinds.NAMES)
    if replay_ is not None:
        outcome = replay(names[0], replay_, hang)
        out.print(f"{outcome.what} {outcome.error}\n{outcome.detail}", markup=False)
        raise typer.Exit(0 if outcome.fine else 1)
    seed = time.time_ns() // 1000 if seed is None else seed
    if count is None and minutes is None:
        count = 1000
    reports = []
    for name in names:
        out.print(f"{name}: seed {seed}")
        seconds = None if minutes is None else 60 * minutes
        report = Campaign(name, seed, count, seconds, jobs or cpus(), hang, folder, first).run()
        reports.append(report)
        for finding in report.findings.values():
            if shrink and finding.alone and finding.path and name != "model":
                finding.path = minimise(name, finding.path, finding.outcome, hang)
            out.print(str(finding), markup=False, soft_wrap=True)
    out.print(summary(reports))
    raise typer.Exit(1 if any(report.new for report in reports) else 0)


def cpus() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def summary(reports: list[Report]) -> Table:
    table = Table(
        "kind", "seed", "mutants", "seconds", "slowest", "new", "known", "outcomes", box=None
    )
    for report in reports:
        known = sum(finding.times for finding in report.findings.values() if finding.known)
        outcomes = ", ".join(f"{name}: {n}" for name, n in report.outcomes.most_common())
        table.add_row(
            report.kind,
            str(report.seed),
            str(report.tried),
            f"{report.seconds:.0f}",
            f"{report.slowest[0]:.1f} s ({report.slowest[1]})",
            str(len(report.new)),
            str(known),
            outcomes,
        )
    return table


if __name__ == "__main__":
    app(prog_name="fuzz")
