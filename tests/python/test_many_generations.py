"""Eight threads, two permits, 200 generations: how many at once, in what order, what remains."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import wait_until

import pronk
from pronk.testing import ScriptedModel

Drain = Callable[[pronk.InferenceScheduler], None]

THREADS = 8
GENERATIONS = 200
LAYOUTS = ["isolated", "batched"]


@pytest.fixture(params=["scripted", "plain"])
def engine(request: pytest.FixtureRequest, tiny_plain: Path) -> Iterator[pronk.InferenceEngine]:
    if request.param == "plain":
        yield pronk.InferenceEngine.load(tiny_plain)
    else:
        model = ScriptedModel()
        yield model.engine
        assert model.violations == []


def run_all(scheduler: pronk.InferenceScheduler) -> list[pronk.Completion]:
    """Each thread acquires, generates and gives back, again and again."""

    def work(number: int) -> pronk.Completion:
        with scheduler.acquire(timeout=60) as permit:
            prompt = f"{'the same beginning, ' * (number % 3)}prompt {number}"
            return permit.generate(prompt, max_tokens=number % 7 + 1, ignore_eos=True).result(60)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, range(GENERATIONS)))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_figures_add_up(engine: pronk.InferenceEngine, layout: str, drain: Drain) -> None:
    with pronk.InferenceScheduler(
        2, engine=engine, n_ctx=128, layout=layout, n_threads=1
    ) as scheduler:
        usages = [done.usage for done in run_all(scheduler)]
        # Counted once the last step is over, a moment after the last result.
        wait_until(lambda: scheduler.statistics().completed == GENERATIONS)
        statistics = scheduler.statistics()
        drain(scheduler)
    assert statistics.high_water == 2
    assert statistics.acquired == statistics.released == statistics.generations == GENERATIONS
    assert (statistics.cancelled, statistics.failed, statistics.timed_out) == (0, 0, 0)
    assert (statistics.running, statistics.waiting, statistics.abandoned) == (0, 0, 0)
    prompt = sum(usage.prompt_tokens for usage in usages)
    cached = sum(usage.cached_tokens for usage in usages)
    completion = sum(usage.completion_tokens for usage in usages)
    assert completion == sum(number % 7 + 1 for number in range(GENERATIONS))
    assert statistics.prompt_tokens == prompt
    assert statistics.reused_tokens == cached
    assert statistics.completion_tokens == completion
    # The last token of each is sampled, but does not go through the model.
    assert statistics.evaluated_tokens == prompt - cached + completion - GENERATIONS


def test_first_come_first_served(drain: Drain) -> None:
    model = ScriptedModel()
    model.record()
    order: list[bytes] = []
    turn = threading.Lock()

    def submit(number: int) -> pronk.Generation:
        prompt = f"{number:03}".encode()
        with turn:
            order.append(prompt)
            return scheduler.generate(list(prompt), max_tokens=number % 7 + 1, cache=False)

    with pronk.InferenceScheduler(2, engine=model.engine, n_ctx=64) as scheduler:
        model.hold()
        with ThreadPoolExecutor(THREADS) as pool:
            running = list(pool.map(submit, range(GENERATIONS)))
        model.resume()
        for generation in running:
            generation.result(60)
        drain(scheduler)
    started: list[bytes] = []
    for batch in model.batches:
        assert len({item.seq for item in batch.items}) <= 2
        prompts = {
            seq: bytes(item.token for item in batch.items if item.seq == seq and item.pos < 3)
            for seq in {item.seq for item in batch.items if item.pos == 0}
        }
        started += prompts.values()
        # Those that begin in one batch began at once; else nobody is before an earlier one.
        assert set(started) == set(order[: len(started)])
    assert len(started) == GENERATIONS


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_does_not_grow(engine: pronk.InferenceEngine, layout: str) -> None:
    def resident() -> int:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * 4096

    with pronk.InferenceScheduler(
        2, engine=engine, n_ctx=128, layout=layout, n_threads=1
    ) as scheduler:
        run_all(scheduler)
        warm = resident()
        for _ in range(2):
            run_all(scheduler)
        grown = resident() - warm
    # 20 kB for each generation.
    assert grown < 8 << 20, f"{grown} bytes"
