"""The command line: `python -m benchmarks` runs everything, `... list` says what there is."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import limits_page, machine, plots, report, workloads
from benchmarks.cmake import BuildError
from benchmarks.peers.build import PeerError, flags
from benchmarks.settings import PROJECT, Settings

RESULTS = PROJECT / "benchmarks" / "results"
QUICK_RESULTS = PROJECT / "build" / "benchmarks-quick"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
# Where nobody looks, tables get the width that they need.
out = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
err = Console(stderr=True, highlight=False)


@app.callback(invoke_without_command=True)
def main(context: typer.Context) -> None:
    """Measure pronk against what users would pick instead. Without a command: run everything."""
    if context.invoked_subcommand is None:
        run()


@app.command("list")
def list_() -> None:
    """Say which workloads there are."""
    table = Table("workload", "what it measures", box=None)
    for name in workloads.NAMES:
        table.add_row(name, workloads.load(name).SUMMARY)
    out.print(table)


@app.command()
def run(
    names: Annotated[list[str] | None, typer.Argument(help="Workloads; all without any.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Run every workload.")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of every side, in turns.")] = 5,
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny sizes: shows that it runs, measures nothing.")
    ] = False,
    pool: Annotated[
        list[str] | None, typer.Option(help="Option of init_pool, as in n_threads=1; repeatable.")
    ] = None,
    peers: Annotated[
        bool, typer.Option(help="Build and run llama.cpp's own programs and other packages.")
    ] = True,
    openmp: Annotated[
        bool, typer.Option(help="Build llama.cpp's own programs with OpenMP, as is its default.")
    ] = True,
    model: Annotated[Path | None, typer.Option(help="A GGUF file; pronk's default model.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Directory of JSON and plots: benchmarks/results, or build/ if quick."),
    ] = None,
) -> None:
    """Run workloads, print tables, write JSON and plots."""
    wanted = list(workloads.NAMES) if all_ or not names else names
    unknown = [name for name in wanted if name not in workloads.NAMES]
    if unknown:
        known = ", ".join(workloads.NAMES)
        raise typer.BadParameter(f"got {', '.join(unknown)}, expected some of {known}")
    directory = output or (QUICK_RESULTS if quick else RESULTS)
    settings = Settings(
        rounds=rounds,
        quick=quick,
        pool=_options(pool or []),
        peers=peers,
        openmp=openmp,
        model=model,
        say=lambda line: err.print(f"[dim]{line}[/dim]"),
    )
    for name in wanted:
        about = machine.describe(settings)
        try:
            result = workloads.load(name).run(settings)
        except (BuildError, PeerError) as error:
            err.print(f"[red]{name}:[/red] {error}", markup=True)
            raise typer.Exit(1) from None
        document = {**result.as_json(), **about, "peers": flags(settings)}
        path = report.save(document, directory)
        report.show(document, out)
        err.print(f"[dim]written: {_shown(path)}[/dim]")
        _plot(document, directory)
    _summarise(directory)


@app.command("report")
def report_(
    directory: Annotated[Path, typer.Argument(help="Where the JSON files are.")] = RESULTS,
    markdown: Annotated[bool, typer.Option("--markdown", help="A table for a README.")] = False,
) -> None:
    """Show results once more, and draw their plots anew."""
    documents = report.load(directory)
    if markdown:
        typer.echo(report.markdown(documents))
        return
    for document in documents:
        report.show(document, out)
        _plot(document, directory)
    _summarise(directory)


def _summarise(directory: Path) -> None:
    documents = report.load(directory)
    limits_page.write(documents, directory)
    text = "# Results\n\n" + report.markdown(documents)
    (directory / "README.md").write_text(text.rstrip() + "\n", encoding="utf-8")


def _plot(document: dict[str, Any], directory: Path) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        err.print(
            "[yellow]no plot: matplotlib is not installed: pip install --group bench[/yellow]"
        )
        return
    path = plots.plot(document, directory)
    if path is not None:
        err.print(f"[dim]written: {_shown(path)}[/dim]")


def _shown(path: Path) -> str:
    path = path.resolve()
    return str(path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path)


def _options(words: list[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator:
            raise typer.BadParameter(f"--pool: got {word}, expected NAME=VALUE")
        options[key] = _value(value)
    return options


def _value(text: str) -> int | float | str:
    with suppress(ValueError):
        return int(text)
    with suppress(ValueError):
        return float(text)
    return text


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
