"""Cases W: what could give somebody the wrong text. See CASES.md."""

from __future__ import annotations

import random
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import Child, wait_until

import pronk
from pronk.testing import ScriptedModel

Drain = Callable[[pronk.InferenceScheduler], None]

ARRANGEMENTS: list[dict[str, Any]] = [
    {"layout": "isolated", "n_batch": 4},  # which reuses whole chunks
    {"layout": "batched", "kv": "shared", "n_cached": 2},
    {"layout": "batched", "kv": "split", "n_cached": 2},
]


@pytest.mark.parametrize("permits", [1, 3])
@pytest.mark.parametrize("arrangement", ARRANGEMENTS, ids=lambda a: a.get("kv", a["layout"]))
def test_nobody_continues_somebody_elses_answer(
    arrangement: dict[str, Any], permits: int, drain: Drain
) -> None:
    """W01: 500 requests over more prompts than the pool can keep, each answered as if alone.

    The scripted model mixes all that a sequence holds into the next token: a foreign one shows.
    """
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    source = random.Random(seed)
    model = ScriptedModel()
    prompts = [f"{marker} tell me" for marker in ("fox", "owl", "elk", "cow", "bee", "ape", "ant")]
    prompts.append("fox tell me more")
    expected = {prompt: model.expected_text(prompt, 6) for prompt in prompts}
    with pronk.InferenceScheduler(
        permits, engine=model.engine, n_ctx=64, **arrangement
    ) as scheduler:
        asked = source.choices(prompts, k=500)
        running = [scheduler.generate(p, max_tokens=6, temperature=0) for p in asked]
        cached = 0
        for prompt, generation in zip(asked, running, strict=True):
            done = generation.result(60)
            assert done.text == expected[prompt]
            assert 0 <= done.usage.cached_tokens < done.usage.prompt_tokens
            cached += done.usage.cached_tokens
        drain(scheduler)
        assert scheduler.close()
    # What was reported as reused is what really did not go through the model.
    prompt_tokens = sum(len(prompt) for prompt in asked)
    completion_tokens = sum(len(expected[prompt]) - 1 for prompt in asked)
    assert model.counters.items == prompt_tokens - cached + completion_tokens
    assert cached > 0
    assert model.violations == []


@pytest.fixture(scope="module")
def engine(tiny_plain: Path) -> pronk.InferenceEngine:
    return pronk.InferenceEngine.load(tiny_plain)


@pytest.mark.parametrize("seed", [0, 7, 2**64 - 1])
@pytest.mark.parametrize("layout", ["isolated", "batched"])
def test_a_fixed_seed_repeats(engine: pronk.InferenceEngine, seed: int, layout: str) -> None:
    """W11: on one permit twice, in another lane, and beside three noisy neighbours; 0 is a seed."""

    def ask(permit: pronk.InferencePermit) -> list[int]:
        done = permit.generate(
            "Once upon a time", max_tokens=24, temperature=1.0, seed=seed, ignore_eos=True
        )
        return done.result(60).tokens

    with pronk.InferenceScheduler(
        4, engine=engine, n_ctx=128, layout=layout, n_threads=1, type_k="f32", type_v="f32"
    ) as scheduler:
        with scheduler.acquire() as permit:
            first = ask(permit)
            assert ask(permit) == first
            neighbours = [
                scheduler.generate(f"noise {i}", max_tokens=100, temperature=2.0, ignore_eos=True)
                for i in range(3)
            ]
            assert ask(permit) == first
        for neighbour in neighbours:
            neighbour.cancel()
        other = scheduler.generate(
            "Once upon a time", max_tokens=24, temperature=1.0, seed=seed ^ 1, ignore_eos=True
        )
        assert other.result(60).tokens != first


def test_without_a_seed_every_process_says_something_else(tiny_plain: Path, child: Child) -> None:
    """W11: None draws a fresh seed, in every process and for every generation."""
    code = """
        import sys
        import pronk

        engine = pronk.InferenceEngine.load(sys.argv[1])
        with pronk.InferenceScheduler(1, engine=engine, n_ctx=64, n_threads=1) as scheduler:
            for _ in range(2):
                done = scheduler.generate("a", max_tokens=32, temperature=1.5, ignore_eos=True)
                print(done.result(20).tokens)
    """
    lines = [line for _ in range(2) for line in child(code, tiny_plain).stdout.splitlines()]
    assert len(lines) == len(set(lines)) == 4


@pytest.mark.parametrize("layout", ["isolated", "batched"])
def test_every_end_tells_what_it_is(layout: str) -> None:
    """W15: a failure, a cancel and a full context each look different, and from a stop."""
    model = ScriptedModel()
    model.script("stop", "all of it")
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=16, layout=layout) as scheduler:

        def start(prompt: str = "abc") -> pronk.Generation:
            return scheduler.generate(prompt, temperature=0, ignore_eos=prompt != "stop")

        ordinary = start("stop")
        assert "".join(ordinary) == "all of it"
        assert ordinary.result(20).finish_reason == "stop"

        full = start()
        assert len("".join(full).encode()) <= 14
        assert full.result(20).finish_reason == "length"

        model.hold()
        cancelled = start("other")
        model.step(3)
        next(cancelled)
        cancelled.cancel()
        model.resume()
        with pytest.raises(pronk.GenerationCancelled):
            list(cancelled)
        assert cancelled.result(20).finish_reason == "cancelled"

        model.fault("runtime_error", call=model.counters.decode_calls + 5)
        failed = start("more")
        with pytest.raises(pronk.BackendError):
            list(failed)
        with pytest.raises(pronk.BackendError):
            failed.result(20)


def test_release_and_try_acquire_at_once(drain: Drain) -> None:
    """W17: while somebody queues, a permit that comes back cannot be snatched."""
    scheduler = pronk.InferenceScheduler(1)
    served = 0

    def wait() -> None:
        nonlocal served
        with scheduler.acquire(timeout=60):
            served += 1

    for _ in range(300):
        permit = scheduler.acquire()
        waiter = threading.Thread(target=wait)
        waiter.start()
        wait_until(lambda: scheduler.waiting_count == 1)
        before = served
        permit.release()
        snatched = scheduler.try_acquire()
        # Only once the waiter has had its turn can there be a permit to take.
        assert snatched is None or served == before + 1
        if snatched is not None:
            snatched.release()
        waiter.join(20)
    assert served == 300
    assert scheduler.statistics().high_water == 1
    drain(scheduler)


@pytest.mark.parametrize("layout", ["isolated", "batched"])
def test_many_submit_while_a_step_runs(layout: str) -> None:
    """W19: eight threads hand over their prompts while a decode is held."""
    model = ScriptedModel()
    with (
        pronk.InferenceScheduler(8, engine=model.engine, n_ctx=64, layout=layout) as scheduler,
        ThreadPoolExecutor(8) as pool,
    ):
        barrier = threading.Barrier(8)

        def submit(prompt: str) -> pronk.Generation:
            barrier.wait(20)
            return scheduler.generate(prompt, max_tokens=3, temperature=0)

        for number in range(100):
            model.hold()
            first = scheduler.generate(f"first {number}", max_tokens=3, temperature=0)
            assert model.wait_held(20)
            prompts = [f"{number} from {i}" for i in range(8)]
            running = list(pool.map(submit, prompts))
            model.resume()
            for prompt, generation in zip(prompts, running, strict=True):
                assert generation.result(20).text == model.expected_text(prompt, 3)
            assert first.result(20).text == model.expected_text(f"first {number}", 3)
    assert model.violations == []
