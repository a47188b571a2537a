"""Cases A: what callers could be surprised by. See CASES.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pronk

ARRANGEMENTS: list[dict[str, Any]] = [
    {"layout": "isolated"},
    {"layout": "batched", "kv": "shared"},
    {"layout": "batched", "kv": "split"},
]
each_arrangement = pytest.mark.parametrize(
    "arrangement", ARRANGEMENTS, ids=lambda a: a.get("kv", a["layout"])
)


@each_arrangement
def test_n_ctx_is_what_every_permit_has(tiny_plain: Path, arrangement: dict[str, Any]) -> None:
    """A01: n_ctx is not divided by the number of permits, and four may use all of it at once."""
    engine = pronk.InferenceEngine.load(tiny_plain)
    with pronk.InferenceScheduler(
        4, engine=engine, n_ctx=256, n_threads=1, **arrangement
    ) as scheduler:
        for length in (60, 64, 65, 100, 255):
            running = [
                scheduler.generate([65 + i] * length, max_tokens=1, ignore_eos=True)
                for i in range(4)
            ]
            for generation in running:
                assert generation.result(60).usage.prompt_tokens == length
        assert scheduler.statistics().n_ctx == 256
        with pytest.raises(pronk.ContextOverflowError, match=r"got 256 .* at most 255 .*n_ctx=256"):
            scheduler.generate([65] * 256)


@each_arrangement
def test_all_permits_run_at_once(tiny_any: Path, arrangement: dict[str, Any]) -> None:
    """A03: four permits are four generations at once, for every kind of memory."""
    engine = pronk.InferenceEngine.load(tiny_any)
    with pronk.InferenceScheduler(
        4, engine=engine, n_ctx=256, n_threads=1, **arrangement
    ) as scheduler:
        permits = [scheduler.acquire() for _ in range(4)]
        running = [p.generate("a", max_tokens=None, ignore_eos=True) for p in permits]
        for generation in running:
            assert next(generation)
        statistics = scheduler.statistics()
        assert statistics.n_lanes == statistics.max_concurrent == 4
        for generation in running:
            assert generation.result(60).finish_reason == "length"
        for permit in permits:
            permit.release()


@each_arrangement
def test_prompt_and_answer_together_around_the_limit(
    tiny_plain: Path, arrangement: dict[str, Any]
) -> None:
    """A09: max_tokens is cut to the room that is left; only the prompt must fit."""
    engine = pronk.InferenceEngine.load(tiny_plain)
    n_ctx = 64
    with pronk.InferenceScheduler(
        1, engine=engine, n_ctx=n_ctx, n_threads=1, **arrangement
    ) as scheduler:
        for prompt in (1, 40, 62, 63):
            room = n_ctx - prompt
            lengths = {}
            for wanted in (room - 1, room, room + 1, room + 100, None):
                done = scheduler.generate(
                    [65] * prompt, max_tokens=wanted, temperature=0, ignore_eos=True
                ).result(60)
                assert done.finish_reason == "length"
                lengths[wanted] = len(done.tokens)
            assert lengths[room - 1] == room - 1
            assert lengths[room] == room
            # The last token sampled need not fit any more.
            assert room <= lengths[None] <= room + 1
            assert lengths[room + 1] == lengths[room + 100] == lengths[None]
        with pytest.raises(pronk.ContextOverflowError, match=r"got 64 .* at most 63 "):
            scheduler.generate([65] * n_ctx)
