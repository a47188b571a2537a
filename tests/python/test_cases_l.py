"""Cases L: what could leak. See CASES.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pronk
from pronk.testing import ScriptedModel

Drain = Callable[[pronk.InferenceScheduler], None]


@pytest.mark.parametrize("layout", ["isolated", "batched"])
def test_permits_one_after_the_other(tiny_any: Path, layout: str, drain: Drain) -> None:
    """L05: every lane is free again after its use, for every kind of memory, however it ended."""
    engine = pronk.InferenceEngine.load(tiny_any)
    with pronk.InferenceScheduler(
        3, engine=engine, n_ctx=256, layout=layout, n_threads=1
    ) as scheduler:
        for i in range(9):
            # Past the window of a sliding one.
            prompt = [65 + i, *range(66, 126), *range(66, 96)]
            with scheduler.acquire(timeout=20) as permit:
                generation = permit.generate(prompt, max_tokens=24, temperature=0, ignore_eos=True)
                if i % 3 == 1:
                    next(generation)
                    generation.cancel()
                elif i % 3 == 2:
                    next(generation)
                    continue  # the end of the permit ends it
                assert generation.result(20).finish_reason in {"length", "cancelled"}
        drain(scheduler)
        # All lanes at once.
        running = [scheduler.generate([65 + i], max_tokens=4, ignore_eos=True) for i in range(3)]
        assert [len(generation.result(20).tokens) for generation in running] == [4] * 3


@pytest.mark.parametrize("kind", ["refuse", "runtime_error", "foreign_exception"])
@pytest.mark.parametrize("layout", ["isolated", "batched"])
def test_a_clean_up_that_fails(kind: str, layout: str, drain: Drain) -> None:
    """L05: a permit comes back even where its sequence cannot be removed."""
    model = ScriptedModel()
    with pronk.InferenceScheduler(2, engine=model.engine, n_ctx=64, layout=layout) as scheduler:
        model.fault(kind, point="seq_remove", times=None)  # type: ignore[arg-type]
        for i in range(8):
            with scheduler.acquire(timeout=20) as permit:
                done = permit.generate(f"prompt {i}", max_tokens=4, temperature=0, cache=i % 2 == 0)
                assert done.result(20).text == model.expected_text(f"prompt {i}", 4)
        drain(scheduler)
    assert model.violations == []


def test_cancelled_before_their_turn() -> None:
    """L07: ten queued generations that are cancelled cost no token."""
    model = ScriptedModel()
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64) as scheduler:
        model.hold()
        first = scheduler.generate("first", max_tokens=4, temperature=0)
        queued = [scheduler.generate(f"queued {i}") for i in range(10)]
        for generation in queued:
            generation.cancel()
        assert {g.result(20).finish_reason for g in queued} == {"cancelled"}
        model.resume()
        assert first.result(20).text == model.expected_text("first", 4)
        assert scheduler.close()
    assert model.counters.items == len("first") + 3  # the last one sampled is not evaluated


def test_closed_and_made_again(tiny_plain: Path) -> None:
    """L09: ten schedulers in a row, each with other options; what is left of each raises."""
    engine = pronk.InferenceEngine.load(tiny_plain)
    expected: list[int] | None = None
    options: dict[str, Any]
    for i in range(10):
        options = {"layout": ["isolated", "batched"][i % 2], "n_batch": 16 + 16 * i}
        scheduler = pronk.InferenceScheduler(
            1 + i % 3, engine=engine, n_ctx=64 + 32 * i, n_threads=1, **options
        )
        permit = scheduler.acquire()
        stream = permit.generate([65, 66, 67], max_tokens=8, temperature=0, cache=i % 4 < 2)
        tokens = stream.result(20).tokens
        expected = expected or tokens
        assert tokens == expected
        unfinished = permit.generate("abc", max_tokens=None, ignore_eos=True)
        assert scheduler.close()
        assert scheduler.close()
        assert unfinished.result(20).finish_reason in {"cancelled", "length"}
        with pytest.raises(pronk.SchedulerClosedError):
            permit.generate("abc")
        with pytest.raises(pronk.SchedulerClosedError):
            scheduler.acquire()
        permit.release()
        with pytest.raises(pronk.PermitReleasedError):
            permit.generate("abc")
        assert stream.result(0).tokens == tokens
