"""Cases C: what could end the process. See CASES.md."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import Child
from fixtures_models import Tiny

import pronk
from pronk.testing import ScriptedModel

Drain = Callable[[pronk.InferenceScheduler], None]


@pytest.mark.parametrize("layout", ["isolated", "batched"])
def test_many_threads_on_a_real_model(tiny_plain: Path, layout: str, drain: Drain) -> None:
    """C01: 32 prompts from 8 threads over 2 permits are answered as each is alone.

    Without flash attention and with a float32 cache, what this model rounds decides nothing.
    """
    engine = pronk.InferenceEngine.load(tiny_plain)
    prompts = [[40 + i, *range(41, 43 + i % 8)] for i in range(32)]

    def scheduler(permits: int) -> pronk.InferenceScheduler:
        return pronk.InferenceScheduler(
            permits,
            engine=engine,
            n_ctx=64,
            layout=layout,
            n_threads=1,
            flash_attention="off",
            type_k="f32",
            type_v="f32",
        )

    def ask(scheduler: pronk.InferenceScheduler, prompt: list[int]) -> list[int]:
        with scheduler.acquire() as permit:
            return permit.generate(prompt, max_tokens=8, temperature=0).result(60).tokens

    with scheduler(1) as alone:
        expected = [
            alone.generate(p, max_tokens=8, temperature=0, cache=False).result(60).tokens
            for p in prompts
        ]
    assert len({tuple(tokens) for tokens in expected}) > 16
    with scheduler(2) as crowded:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda p: ask(crowded, p), prompts)) == expected
        drain(crowded)


@pytest.mark.parametrize("layout", ["isolated", "batched"])
def test_more_lanes_than_a_batch_holds(tiny_plain: Path, layout: str) -> None:
    """C05: 64 generations at once, batches of 16."""
    engine = pronk.InferenceEngine.load(tiny_plain)
    with pronk.InferenceScheduler(
        64, engine=engine, n_ctx=32, layout=layout, n_batch=16, n_threads=1, n_cached=0
    ) as scheduler:
        permits = [scheduler.acquire() for _ in range(64)]
        generations = [
            permit.generate([40 + i], max_tokens=6, temperature=0, ignore_eos=True)
            for i, permit in enumerate(permits)
        ]
        assert {len(generation.result(60).tokens) for generation in generations} == {6}
        for permit in permits:
            permit.release()


MUTANTS = """
    import random, sys
    import pronk

    sound = open(sys.argv[1], "rb").read()
    source = random.Random(int(sys.argv[3]))
    loaded = 0
    for number in range(int(sys.argv[4])):
        data = bytearray(sound)
        for _ in range(source.randrange(1, 4)):
            at = source.randrange(min(4096, len(data)))
            kind = source.randrange(4)
            if kind == 0:
                data[at] ^= 1 << source.randrange(8)
            elif kind == 1:
                data[at] = source.choice([0, 1, 0x7F, 0x80, 0xFF])
            elif kind == 2:
                data[at : at + 8] = bytes(8)  # a key of no length, a count of zero
            else:
                data[at : at + 8] = source.choice([2**63, 2**40, 2**31, 7]).to_bytes(8, "little")
        with open(sys.argv[2], "wb") as file:
            file.write(data)
        print(number, flush=True)
        try:
            engine = pronk.InferenceEngine.load(sys.argv[2])
            engine.tokenize("Once upon a time")
            loaded += 1
        except (pronk.ModelLoadError, pronk.InsufficientMemoryError):
            pass
    print("loaded", loaded)
"""


@pytest.mark.parametrize("kind", ["plain", "hybrid"])
def test_damaged_headers(tiny: Tiny, tmp_path: Path, child: Child, kind: str) -> None:
    """C11: a model file whose header is damaged is refused, or harmless."""
    seed = 20
    finished = child(MUTANTS, tiny(kind), tmp_path / "m.gguf", seed, 100)  # type: ignore[arg-type]
    assert "loaded" in finished.stdout, (seed, finished)


@pytest.mark.parametrize("layout", ["isolated", "batched"])
def test_the_end_of_the_context(tiny_any: Path, layout: str) -> None:
    """C13: running into it ends the generation, for every kind of memory."""
    engine = pronk.InferenceEngine.load(tiny_any)
    with pronk.InferenceScheduler(
        2, engine=engine, n_ctx=64, layout=layout, n_threads=1
    ) as scheduler:
        for _ in range(2):
            running = [
                scheduler.generate(prompt, max_tokens=200, temperature=0, ignore_eos=True)
                for prompt in ([65, 66, 67], list(range(65, 95)))
            ]
            for generation in running:
                done = generation.result(60)
                assert done.finish_reason == "length"
                assert 63 <= done.usage.prompt_tokens + len(done.tokens) <= 65
        assert scheduler.statistics().failed == 0


@pytest.mark.parametrize("text", ["\n" * 1_000_000, "\0" * 100_000, "\N{LLAMA}" * 100_000])
def test_a_huge_prompt(tiny_plain: Path, text: str) -> None:
    """C15: a megabyte of text is a prompt that is too long, nothing worse."""
    engine = pronk.InferenceEngine.load(tiny_plain)
    with pronk.InferenceScheduler(1, engine=engine, n_ctx=64, n_threads=1) as scheduler:
        with pytest.raises(pronk.ContextOverflowError, match="n_ctx=64"):
            scheduler.generate(text, max_tokens=1)
        assert scheduler.generate("a", max_tokens=1).result(60).tokens


@pytest.mark.parametrize(
    "kind", ["no_memory", "failed", "runtime_error", "bad_alloc", "foreign_exception"]
)
def test_a_pool_that_fails_half_way(kind: str) -> None:
    """C23: the second context cannot be made after the first has its thread."""
    model = ScriptedModel()
    threads = threading.active_count()
    scheduler = pronk.InferenceScheduler(2)
    model.fault(kind, point="make_backend", call=2)  # type: ignore[arg-type]
    with pytest.raises(pronk.Error):
        scheduler.init_pool(model.engine, n_ctx=64, layout="isolated")
    assert model.counters.contexts_alive == 0
    assert threading.active_count() == threads
    with scheduler.acquire() as permit, pytest.raises(pronk.PoolNotInitialisedError):
        permit.generate("abc")
    scheduler.init_pool(model.engine, n_ctx=64, layout="isolated")
    done = scheduler.generate("abc", max_tokens=4, temperature=0).result(20)
    assert done.text == model.expected_text("abc", 4)
    assert scheduler.close()
    assert model.counters.contexts_alive == 0


def test_an_exception_while_streaming(drain: Drain) -> None:
    """C23: what the body of a loop raises at the third token arrives, and the permit comes back."""
    model = ScriptedModel()
    model.set_delay(0.001)  # else a piece may be several tokens

    def read_three() -> None:
        with scheduler.acquire() as permit:
            for number, _ in enumerate(permit.generate("abc", ignore_eos=True), 1):
                if number == 3:
                    raise ValueError("at 3")

    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=256) as scheduler:
        for _ in range(5):
            with pytest.raises(ValueError, match="at 3"):
                read_three()
        drain(scheduler)
        canary = scheduler.generate("abc", max_tokens=16, temperature=0).result(20)
        assert canary.text == model.expected_text("abc", 16)
    assert model.violations == []


@pytest.mark.parametrize("kind", ["bad_alloc", "runtime_error", "foreign_exception"])
def test_an_exception_of_the_backend_under_three_permits(kind: str, drain: Drain) -> None:
    """C25: it ends the three generations, with an error, and the next one works."""
    model = ScriptedModel()
    with pronk.InferenceScheduler(3, engine=model.engine, n_ctx=64) as scheduler:
        model.hold()
        permits = [scheduler.acquire() for _ in range(3)]
        running = [p.generate(f"prompt {i}", max_tokens=30) for i, p in enumerate(permits)]
        while model.counters.most_sequences < 3:
            model.step()
            assert model.wait_held(20)
        model.fault(kind)  # type: ignore[arg-type]
        model.resume()
        for generation in running:
            with pytest.raises(pronk.BackendError):
                generation.result(20)
        del permits
        drain(scheduler)
        canary = scheduler.generate("abc", max_tokens=16, temperature=0).result(20)
        assert canary.text == model.expected_text("abc", 16)
        assert scheduler.statistics().healthy
    assert model.violations == []
