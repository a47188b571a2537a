"""A picture per result: every figure of it as a bar with its spread, beside its goal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.report import provenance

_MET, _MISSED, _PLAIN = "#2f7d4f", "#b5443c", "#4a6fa5"


def plot(document: Mapping[str, Any], directory: Path) -> Path | None:
    """Write a PNG of all ratios of a result. Returns the file, None if there are none."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = [
        (f"{case['name']}\n{figure['label']}", figure)
        for case in document["cases"]
        for figure in case["figures"]
        if figure["unit"] == "x"
    ]
    if not rows:
        return None
    figure, axes = plt.subplots(figsize=(9, 1.2 + 0.5 * len(rows)), layout="constrained")
    for place, (_, ratio) in enumerate(rows):
        colour = {True: _MET, False: _MISSED, None: _PLAIN}[ratio["met"]]
        spread = [[ratio["median"] - ratio["min"]], [ratio["max"] - ratio["median"]]]
        axes.barh(place, ratio["median"], xerr=spread, color=colour, height=0.6, capsize=3)
        if ratio["goal"] is not None:
            bound = ratio["goal"]["bound"]
            axes.plot([bound, bound], [place - 0.4, place + 0.4], color="black", linewidth=2)
    axes.axvline(1.0, color="grey", linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("ratio: median of the rounds, min to max; the black mark is the goal")
    axes.set_title(document["title"], fontsize=11)
    figure.text(0.99, -0.02, provenance(document), ha="right", va="top", fontsize=6, color="grey")
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{document['workload']}.png"
    figure.savefig(path, dpi=120, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)
    return path
