"""Whether a scheduler gets slower with use: random work for 50 rounds, then the same step again."""

from __future__ import annotations

import random
from functools import partial

import pronk
from benchmarks.record import Case, Figure, Metric, Result, Sample, at_most
from benchmarks.runner import alternate
from benchmarks.settings import Settings
from benchmarks.streams import random_tokens

SUMMARY = "cost of a step after 50 rounds of random work, against one after 2 rounds"

STEP = Metric("step", "cost of a step", "s", "lower")
PERMITS = 4


def run(settings: Settings) -> Result:
    rounds = 4 if settings.quick else 50
    aged_name, fresh_name = f"after {rounds} rounds", "after 2 rounds"
    n_decode = 8 if settings.quick else 96
    result = Result("aging", "A step after much work")
    result.notes = [
        "A round: 4 generations at once with random prompts of 16 to 400 tokens and 8 to 64 tokens "
        "generated. Then, in turns on an aged scheduler and on one that did 2 rounds: 4 permits "
        "decode from new prompts of 64 tokens; a step is the time between two of their tokens.",
    ]
    with _scheduler(settings) as aged, _scheduler(settings) as fresh:
        for scheduler, n, name in ((aged, rounds, aged_name), (fresh, 2, fresh_name)):
            rng = random.Random(4711)
            for index in range(n):
                settings.say(f"aging: {name}, round {index + 1} of {n}")
                _work(settings, scheduler, rng)
        sides = {
            aged_name: partial(_probe, settings, aged, n_decode),
            fresh_name: partial(_probe, settings, fresh, n_decode),
        }
        # Each probe leaves its prompts in the cache, which ages the fresh one too: few of them.
        samples = alternate(settings, "aging: probe", sides, rounds=max(settings.rounds, 5))
    case = Case(f"a step {aged_name}", [STEP], samples, {"rounds": rounds, "permits": PERMITS})
    pairs = zip(case.series(aged_name, "step"), case.series(fresh_name, "step"), strict=True)
    growth = [a / b for a, b in pairs]
    case.figures.append(Figure(f"cost {aged_name} over {fresh_name}", growth, goal=at_most(1.2)))
    result.cases.append(case)
    return result


def _scheduler(settings: Settings) -> pronk.InferenceScheduler:
    scheduler = pronk.InferenceScheduler(PERMITS)
    scheduler.init_pool(settings.engine, n_ctx=1024, **settings.pool)
    return scheduler


def _work(settings: Settings, scheduler: pronk.InferenceScheduler, rng: random.Random) -> None:
    longest, most = (40, 6) if settings.quick else (400, 64)
    running = []
    for _ in range(PERMITS):
        prompt = random_tokens(rng.random(), settings.engine.n_vocab)(rng.randint(16, longest))
        running.append(
            scheduler.generate(
                prompt, max_tokens=rng.randint(4, most), temperature=0, ignore_eos=True
            )
        )
    for generation in running:
        generation.result()


def _probe(settings: Settings, scheduler: pronk.InferenceScheduler, n_decode: int) -> Sample:
    draw = random_tokens(scheduler.statistics().generations, settings.engine.n_vocab)
    running = [
        scheduler.generate(draw(64), max_tokens=n_decode, temperature=0, ignore_eos=True)
        for _ in range(PERMITS)
    ]
    # The last one to begin decodes with all others beside it from its first token on.
    shortest = min(generation.result().timings.decode for generation in running)
    return {"step": shortest / (n_decode - 1)}
