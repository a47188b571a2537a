"""Tables on the terminal and in Markdown, and the JSON files that both come from."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

_SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def save(document: Mapping[str, Any], directory: Path) -> Path:
    """Write a result as JSON. Returns the file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{document['workload']}.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path


def load(directory: Path) -> list[dict[str, Any]]:
    """Return all results in a directory."""
    return [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(directory.glob("*.json"))
    ]


def show(document: Mapping[str, Any], console: Console) -> None:
    """Print one result: what each side measured, then the figures."""
    console.rule(document["title"])
    for case in document["cases"]:
        table = Table(title=case["name"], title_justify="left")
        table.add_column("median of the rounds")
        for metric in case["metrics"]:
            table.add_column(metric["label"], justify="right")
        for side, samples in case["samples"].items():
            cells = [quantity(_median(samples, m["key"]), m["unit"]) for m in case["metrics"]]
            table.add_row(side, *cells)
        console.print(table)
        if case["figures"]:
            console.print(_figures(case["figures"]))
    for note in document["notes"]:
        console.print(f"[dim]{note}[/dim]")
    for reason in document["skipped"]:
        console.print(f"[yellow]left out:[/yellow] {reason}")
    console.print(f"[dim]{provenance(document)}[/dim]")


def _figures(figures: Iterable[Mapping[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2))
    table.add_column("figure")
    for column in ("min", "median", "max", "goal"):
        table.add_column(column, justify="right")
    for figure in figures:
        style = {True: "green", False: "red", None: ""}[figure["met"]]
        cells = [quantity(figure[key], figure["unit"]) for key in ("min", "median", "max")]
        table.add_row(figure["label"], *cells, goal(figure), style=style)
    return table


def markdown(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return a table of all figures, a section per workload, for a README."""
    lines = []
    for document in documents:
        lines += [f"### {document['title']}", ""]
        lines += ["| case | figure | median | min to max | goal |", "|---|---|--:|--:|--:|"]
        for case in document["cases"]:
            for figure in case["figures"]:
                low, mid, high = (
                    quantity(figure[key], figure["unit"]) for key in ("min", "median", "max")
                )
                mark = {True: "", False: " (missed)", None: ""}[figure["met"]]
                cells = [case["name"], figure["label"], f"**{mid}**{mark}"]
                cells += [f"{low} to {high}", goal(figure)]
                lines.append("| " + " | ".join(cells) + " |")
        lines += ["", f"*{provenance(document)}*", ""]
        if document["skipped"]:
            lines += ["Left out: " + "; ".join(document["skipped"]) + ".", ""]
    return "\n".join(lines)


def provenance(document: Mapping[str, Any]) -> str:
    """When, where and from what the figures come, in one line."""
    machine, build = document["machine"], document["build"]["pronk"]
    commit = document["commit"]["id"][:10] + (
        " with changes" if document["commit"]["dirty"] else ""
    )
    rounds = document["settings"]["rounds"]
    words = [
        document["date"][:10],
        f"{machine['cpu']}, {machine['usable_cpus']} CPUs" + (", virtual" * machine["virtual"]),
        machine["system"],
        f"commit {commit}",
        f"llama.cpp {build['llama_cpp_tag']}, {build['compiler']}, {build['build_type']}",
        f"{rounds} round{'s' * (rounds != 1)}",
    ]
    quick = ["a quick run, which measures nothing"] if document["settings"]["quick"] else []
    return "; ".join(quick + words)


def goal(figure: Mapping[str, Any]) -> str:
    if figure["goal"] is None:
        return ""
    return f"{figure['goal']['sense']} {quantity(figure['goal']['bound'], figure['unit'])}"


def quantity(value: float, unit: str) -> str:
    """Return a number with its unit, in three digits or so."""
    if unit == "x":
        return f"{value:.2f} x"
    if unit == "s":
        scale, name = next((s for s in _SCALES if abs(value) >= s[0]), _SCALES[-1])
        return f"{value / scale:.3g} {name}"
    return f"{value:,.0f} {unit}" if abs(value) >= 100 else f"{value:.3g} {unit}"


def _median(samples: Iterable[Mapping[str, float]], key: str) -> float:
    return statistics.median(sample[key] for sample in samples)
