"""Cases O: when memory or room runs out. See CASES.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Child

import pronk
from pronk.testing import ScriptedModel


@pytest.mark.parametrize("kv", ["shared", "split", None])
def test_a_hog_ends_alone(tiny_plain: Path, kv: str | None) -> None:
    """O03: one generation runs to the end of its context, three small ones never notice."""
    engine = pronk.InferenceEngine.load(tiny_plain)
    layout = {"layout": "batched", "kv": kv} if kv else {"layout": "isolated"}
    exact = {"flash_attention": "off", "type_k": "f32", "type_v": "f32"}
    with pronk.InferenceScheduler(
        4, engine=engine, n_ctx=256, n_threads=1, **layout, **exact
    ) as scheduler:
        small = [[65 + i] * (10 + i) for i in range(3)]

        def ask(prompt: list[int], n: int | None = 16) -> pronk.Generation:
            return scheduler.generate(
                prompt, max_tokens=n, temperature=0, ignore_eos=True, cache=False
            )

        alone = [ask(prompt).result(60).tokens for prompt in small]
        hog = ask([70] * 100, None)
        while not hog.done:
            assert [g.result(60).tokens for g in [ask(prompt) for prompt in small]] == alone
        done = hog.result(60)
        assert done.finish_reason == "length"
        assert len(done.tokens) >= 155
        assert scheduler.statistics().failed == 0


@pytest.mark.parametrize("layout", ["isolated", "batched"])
def test_a_context_beyond_memory(tiny_plain: Path, child: Child, layout: str) -> None:
    """O07: says what it needs, what there is and what to turn; the process goes on."""
    code = """
        import resource, sys
        import pronk

        engine = pronk.InferenceEngine.load(sys.argv[1])
        limit = 2 << 30
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        scheduler = pronk.InferenceScheduler(4)
        try:
            scheduler.init_pool(engine, 10**7, layout=sys.argv[2], n_cached=0, n_threads=1)
        except pronk.InsufficientMemoryError as error:
            assert "n_ctx" in str(error), error
            print(error)
        scheduler.init_pool(engine, 64, layout=sys.argv[2], n_threads=1)
        assert scheduler.generate("a", max_tokens=4, ignore_eos=True).result(20).tokens
        scheduler.close()
    """
    assert "n_ctx" in child(code, tiny_plain, layout).stdout


@pytest.mark.parametrize("layout", ["isolated", "batched"])
def test_o05_the_cache_stays_within_its_limit(layout: str) -> None:
    """O05: a prompt larger than the limit is not kept, and no number of prompts exceeds it."""
    model = ScriptedModel()
    with pronk.InferenceScheduler(
        2, engine=model.engine, n_ctx=512, layout=layout, cache_tokens=100
    ) as scheduler:
        scheduler.generate([7] * 200, max_tokens=2, temperature=0).result(30)
        assert scheduler.statistics().kv_tokens == 0
        for number in range(50):
            prompt = f"prompt number {number} "
            text = scheduler.generate(prompt, max_tokens=8, temperature=0).result(30).text
            assert text == model.expected_text(prompt, 8)
            assert scheduler.statistics().kv_tokens <= 100
        assert scheduler.statistics().cached_sequences >= 1
    assert model.violations == []
