"""What sampling adds to a step: rows of logits in turn, or several at once."""

from __future__ import annotations

from functools import partial

import pronk
import pronk.testing
from benchmarks.record import Case, Figure, Metric, Result, Sample
from benchmarks.runner import alternate
from benchmarks.settings import Settings

SUMMARY = "sampling on one thread against several, by width and size of the vocabulary"

STEP = Metric("step", "time of a step", "s", "lower")


def run(settings: Settings) -> Result:
    shapes = (
        [(2, 1000)] if settings.quick else [(1, 32_000), (8, 32_000), (8, 152_000), (16, 152_000)]
    )
    n_tokens = 8 if settings.quick else 48
    result = Result("sampling", "Sampling rows of logits")
    result.notes = [
        "Scripted engine, which fills a row of logits instead of computing it; the greedy side of "
        "a round shows that cost, which is subtracted from both others. Sampling: temperature 0.8, "
        "top_k 40, top_p 0.95, min_p 0.05.",
    ]
    if settings.n_threads < 2:
        result.skipped.append("sampling: one CPU, nothing to compare")
        return result
    for width, n_vocab in shapes:
        result.cases.append(_case(settings, width, n_vocab, n_tokens))
    return result


def _case(settings: Settings, width: int, n_vocab: int, n_tokens: int) -> Case:
    model = pronk.testing.ScriptedModel(pieces=[f"w{i} " for i in range(n_vocab)])
    label = f"{width} rows of {n_vocab:,}"
    several = f"{settings.n_threads} threads"
    sides = {
        several: partial(_step, model, width, n_tokens, settings.n_threads, 0.8),
        "1 thread": partial(_step, model, width, n_tokens, 1, 0.8),
        "greedy": partial(_step, model, width, n_tokens, settings.n_threads, 0.0),
    }
    case = Case(label, [STEP], alternate(settings, f"sampling {label}", sides))
    rows = zip(*(case.series(side, "step") for side in sides), strict=True)
    values = [(one - greedy) / (many - greedy) for many, one, greedy in rows if many > greedy]
    if values:
        case.figures.append(Figure(f"sampling with {several}, against 1 thread", values))
    return case


def _step(
    model: pronk.testing.ScriptedModel,
    width: int,
    n_tokens: int,
    n_threads: int,
    temperature: float,
) -> Sample:
    with pronk.InferenceScheduler(width) as scheduler:
        scheduler.init_pool(model.engine, n_ctx=256, n_threads=n_threads)
        running = [
            scheduler.generate(
                [who, 1, 2], max_tokens=n_tokens, temperature=temperature, seed=who, ignore_eos=True
            )
            for who in range(width)
        ]
        shortest = min(generation.result().timings.decode for generation in running)
    return {"step": shortest / (n_tokens - 1)}
