"""Cases P: what could be slow without an error. See CASES.md."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import Child

import pronk
from pronk.testing import ScriptedModel


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs CPU affinity")
@pytest.mark.parametrize("layout", ["isolated", "batched"])
def test_threads_follow_the_cpus_of_the_process(
    tiny_plain: Path, child: Child, layout: str
) -> None:
    """P07: one compute thread on one CPU, the same for four contexts, and no work when idle."""
    code = """
        import os, sys, time

        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        import pronk

        engine = pronk.InferenceEngine.load(sys.argv[1])
        before = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
        with pronk.InferenceScheduler(4, engine=engine, n_ctx=64, layout=sys.argv[2]) as scheduler:
            running = [scheduler.generate("a", max_tokens=32, ignore_eos=True) for _ in range(4)]
            for generation in running:
                generation.result(20)
            if before:
                assert len(os.listdir("/proc/self/task")) <= before + 2
            time.sleep(0.2)
            start = time.process_time()
            time.sleep(1.0)
            idle = time.process_time() - start
            assert scheduler.statistics().n_threads == 1, scheduler.statistics()
            assert idle < 0.2, idle
    """
    child(code, tiny_plain, layout)


def test_what_one_lane_knows_another_reuses() -> None:
    """P09: the longest known prefix is looked up over all sequences, not one's own alone."""
    model = ScriptedModel()
    prompt = "a prompt that is asked for again"
    with pronk.InferenceScheduler(
        2, engine=model.engine, n_ctx=64, layout="batched", n_cached=2
    ) as scheduler:
        with scheduler.acquire() as first:
            first.generate(prompt, max_tokens=2, temperature=0).result(20)
            with scheduler.acquire() as second:
                done = second.generate(prompt, max_tokens=8, temperature=0).result(20)
        assert done.usage.cached_tokens == done.usage.prompt_tokens - 1
        assert done.text == model.expected_text(prompt, 8)
        short = scheduler.generate("a", max_tokens=1, temperature=0).result(20)
        assert short.usage.cached_tokens == 0  # the last token is always evaluated
    assert model.violations == []
