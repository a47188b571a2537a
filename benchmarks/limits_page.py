"""The tables that docs/performance.md points to, from what the workload `limits` measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.record import Sample
from benchmarks.report import provenance, quantity
from benchmarks.roofline import computing, limit, reading

_Rounds = Mapping[str, list[Sample]]


def write(documents: Iterable[Mapping[str, Any]], directory: Path) -> None:
    """Write `limits.md` where there is a result of `limits`."""
    for document in documents:
        if document["workload"] == "limits":
            text = "\n".join(_page(document)).rstrip() + "\n"
            (directory / "limits.md").write_text(text, encoding="utf-8")


def _page(document: Mapping[str, Any]) -> list[str]:
    machine, steps, agents = document["cases"]
    (rates,) = machine["samples"].values()
    (lived,) = agents["samples"].values()
    lines = [
        "# Where the time goes: the tables",
        "",
        f"*{provenance(document)}*",
        "",
        "What they mean says [docs/performance.md](../../docs/performance.md). All values are "
        "medians of the rounds; a share is that of a round.",
        "",
        "## The machine",
        "",
    ]
    threads = machine["parameters"]["threads"]
    lines += _table(
        [f"{threads} thread{'s' * (threads != 1)}", "rate"],
        ([m["label"], quantity(_median(rates, m["key"]), m["unit"])] for m in machine["metrics"]),
    )
    lines += ["## Parts of a step", ""]
    lines += _table(
        ["", "step", "llama_decode", "choose, hand out", "own, in the step", "own, between steps"],
        (_parts(side, samples) for side, samples in steps["samples"].items()),
    )
    lines += ["## A step against the limit", ""]
    lines += _table(
        [
            "",
            "reads",
            "rate",
            "of the machine",
            "operations",
            "rate",
            "of the machine",
            "step over limit",
        ],
        (_against(side, samples, rates) for side, samples in steps["samples"].items()),
    )
    lines += [f"## {agents['name']}", ""]
    lines += [f"Makespan: {quantity(_median(lived, 'makespan'), 's')}.", ""]
    shares = [m for m in agents["metrics"] if m["unit"] == "%"]
    lines += _table(
        ["share", ""], ([m["label"], f"{_median(lived, m['key']):.1f} %"] for m in shares)
    )
    return lines


def _parts(side: str, samples: list[Sample]) -> list[str]:
    cells = [side, quantity(_median(samples, "step"), "s")]
    for key in ("batch", "sample", "rest", "after"):
        share = median(100 * sample[key] / sample["step"] for sample in samples)
        cells.append(f"{quantity(_median(samples, key), 's')} ({share:.1f} %)")
    return cells


def _against(side: str, samples: list[Sample], machine: list[Sample]) -> list[str]:
    pairs = list(zip(samples, machine, strict=True))
    megabytes, operations = _median(samples, "bytes"), _median(samples, "operations")
    bound = "memory" if _all_read(pairs) else "arithmetic"
    return [
        side,
        quantity(megabytes, "MB"),
        quantity(median(s["bytes"] / 1e3 / s["step"] for s in samples), "GB/s"),
        f"{median(100 * reading(s, m) / s['step'] for s, m in pairs):.0f} %",
        quantity(operations, "GFLOP"),
        quantity(median(s["operations"] / s["step"] for s in samples), "GFLOP/s"),
        f"{median(100 * computing(s, m) / s['step'] for s, m in pairs):.0f} %",
        f"{median(s['step'] / limit(s, m) for s, m in pairs):.2f} x ({bound})",
    ]


def _all_read(pairs: list[tuple[Sample, Sample]]) -> bool:
    """Whether reading is what takes longer."""
    return median(reading(s, m) / computing(s, m) for s, m in pairs) > 1


def _table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return [*lines, ""]


def _median(samples: list[Sample], key: str) -> float:
    return median(sample[key] for sample in samples)
