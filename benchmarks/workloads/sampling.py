"""Whether rows of logits are better sampled in turn, or several at once."""

from __future__ import annotations

from functools import partial

from benchmarks import native
from benchmarks.record import Case, Metric, Result, Sample
from benchmarks.runner import alternate
from benchmarks.settings import Settings

SUMMARY = "sampling on one thread against several, by width and size of the vocabulary"

SERIAL = Metric("serial", "time of a step's rows on one thread", "s", "lower")
PARALLEL = Metric("parallel", "time of a step's rows on several threads", "s", "lower")
DEFAULT = "default"
"""Temperature 0.8, top_k 40, top_p 0.95, min_p 0.05."""


def run(settings: Settings) -> Result:
    result = Result("sampling", "Sampling rows of logits")
    result.notes = [
        "The sampler alone, compiled as in the package, on rows that are there before; a "
        "millisecond lies between two steps, in which the other threads fall asleep. default: "
        "temperature 0.8, top_k 40, top_p 0.95, min_p 0.05; penalties: also repeat_penalty 1.1; "
        "plain: temperature 0.8 and no cut; greedy: temperature 0. Each figure: the median step on "
        "one thread over that on as many threads as there are CPUs, in turns in one process.",
    ]
    if settings.n_threads < 2:
        result.skipped.append("sampling: one CPU, nothing to compare")
        return result
    if settings.quick:
        shapes = [(DEFAULT, 2, 1000)]
    else:
        shapes = [
            (DEFAULT, width, n_vocab)
            for n_vocab in (49_152, 152_000, 256_000)
            for width in (2, 4, 8, 16, 64)
        ]
        shapes += [(chain, 16, 152_000) for chain in ("greedy", "penalties", "plain")]
    for chain, width, n_vocab in shapes:
        label = f"{width} rows of {n_vocab:,}, {chain}"
        sides = {"pronk": partial(_sample, settings, chain, width, n_vocab)}
        parameters = {"chain": chain, "rows": width, "n_vocab": n_vocab}
        case = Case(label, [SERIAL, PARALLEL], alternate(settings, label, sides), parameters)
        case.derive(
            f"{settings.n_threads} threads, against 1",
            lambda sample: sample["serial"] / sample["parallel"],
        )
        case.derive("time on 1 thread", lambda sample: sample["serial"] * 1e6, unit="us")
        result.cases.append(case)
    return result


def _sample(settings: Settings, chain: str, width: int, n_vocab: int) -> Sample:
    steps = 10 if settings.quick else max(50, 4000 // width)
    serial, parallel = native.run("sample_rows", chain, width, n_vocab, settings.n_threads, steps)
    return {"serial": serial, "parallel": parallel}
