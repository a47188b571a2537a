"""What recording a trace costs: tokens per second with and without one, alternating.

Runs a scripted model, whose steps cost microseconds, so that what is shown is the cost of the
scheduler itself: with a real model, whose steps take milliseconds, the same time vanishes.

usage: python benchmarks/trace_overhead.py [--permits 8] [--rounds 15] [--model FILE]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pronk
from pronk.testing import ScriptedModel

MAX_TOKENS = 48
GENERATIONS_PER_PERMIT = 40


@dataclass(frozen=True)
class Round:
    """One run of all generations."""

    seconds: float
    tokens: int
    steps: int
    trace_bytes: int


def run(engine: pronk.InferenceEngine, permits: int, trace: Path | None) -> Round:
    with pronk.InferenceScheduler(permits, engine=engine, n_ctx=256) as scheduler:
        scheduler.generate("warm up", max_tokens=4, temperature=0.0).result()
        before = scheduler.statistics()
        if trace is not None:
            scheduler.start_trace()
        begin = time.perf_counter()
        generations = [
            scheduler.generate(f"prompt number {i}", max_tokens=MAX_TOKENS, temperature=0.0)
            for i in range(GENERATIONS_PER_PERMIT * permits)
        ]
        tokens = sum(g.result().usage.completion_tokens for g in generations)
        seconds = time.perf_counter() - begin
        after = scheduler.statistics()
        if trace is not None:
            scheduler.stop_trace(trace)
    size = trace.stat().st_size if trace is not None else 0
    return Round(seconds, tokens, after.steps - before.steps, size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--permits", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--model", type=Path, help="a GGUF file instead of the scripted model")
    options = parser.parse_args()

    scripted = ScriptedModel()
    engine = pronk.InferenceEngine.load(options.model) if options.model else scripted.engine
    rounds: dict[bool, list[Round]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            for traced in (False, True):
                path = Path(folder, "run.json") if traced else None
                rounds[traced].append(run(engine, options.permits, path))

    print(f"pronk {pronk.__version__}, {os.cpu_count()} CPUs, {options.permits} permits")
    medians = {}
    for traced, results in rounds.items():
        per_step = sorted(1e6 * r.seconds / r.steps for r in results)
        medians[traced] = statistics.median(per_step)
        rate = statistics.median(r.tokens / r.seconds for r in results)
        print(
            f"trace {'on ' if traced else 'off'}: {rate:10.0f} tokens/s, "
            f"{medians[traced]:8.2f} us a step (from {per_step[0]:.2f} to {per_step[-1]:.2f})"
        )
    print(f"recording adds {medians[True] - medians[False]:.2f} us a step", end="; ")
    last = rounds[True][-1]
    print(f"the file has {last.trace_bytes / last.steps:.0f} bytes a step")


if __name__ == "__main__":
    main()
