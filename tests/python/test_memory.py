"""What pools take of memory: foretold, taken, refused, chosen."""

from __future__ import annotations

import gc
import pickle
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from fixtures_models import Tiny
from tiny_models import GENERATING_KINDS, MEMORY_KINDS

import pronk
from pronk import _logging
from pronk.testing import ScriptedModel

LAYOUTS: list[dict[str, Any]] = [
    {"layout": "batched", "kv": "shared"},
    {"layout": "batched", "kv": "split"},
    {"layout": "isolated"},
]


def layout_name(options: dict[str, Any]) -> str:
    return "-".join(options.values())


@pytest.fixture(scope="module", params=MEMORY_KINDS)
def engine(request: pytest.FixtureRequest, tiny: Tiny) -> pronk.InferenceEngine:
    return pronk.InferenceEngine.load(tiny(request.param))


@pytest.fixture
def plain(tiny_plain: Path) -> pronk.InferenceEngine:
    return pronk.InferenceEngine.load(tiny_plain)


def check_foretold(engine: pronk.InferenceEngine, n: int, **options: Any) -> None:
    """An estimate, and the pool after all its permits did some work, agree within a tenth."""
    foretold = engine.estimate_memory(max_concurrent=n, **options)
    assert foretold.fits
    with pronk.InferenceScheduler(n, engine=engine, **options) as scheduler:
        prompts = [[65 + i] * (20 + 30 * i) for i in range(n)]
        pronk.generate_all(scheduler, prompts, max_tokens=8, temperature=0, ignore_eos=True)
        taken = scheduler.memory()
        statistics = scheduler.statistics()
    assert [d.device for d in taken] == [d.device for d in foretold.devices]
    for before, after in zip(foretold.devices, taken, strict=True):
        # The sizes of caches and tables are exact; that of the buffers hangs on what is allocated.
        assert before.kv == after.kv
        assert before.other == after.other
        assert before.compute == pytest.approx(after.compute, rel=0.1)
        # A mapped file may have room between tensors.
        assert before.weights == pytest.approx(after.weights, rel=0.1)
        assert before.pool == before.kv + before.compute + before.other
        assert before.total == before.pool + before.weights
    assert statistics.memory_bytes == sum(d.pool for d in taken)
    assert statistics.n_cached == foretold.n_cached
    assert statistics.n_ctx == foretold.n_ctx


@pytest.mark.parametrize("cache_type", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("options", LAYOUTS, ids=layout_name)
def test_the_estimate_is_what_is_taken(
    engine: pronk.InferenceEngine, options: dict[str, Any], cache_type: str
) -> None:
    check_foretold(engine, 3, n_ctx=1000, type_k=cache_type, type_v=cache_type, **options)


@pytest.mark.parametrize("options", LAYOUTS, ids=layout_name)
@pytest.mark.parametrize("kind", [k for k in GENERATING_KINDS if k not in MEMORY_KINDS])
def test_of_the_other_models_too(tiny: Tiny, kind: Any, options: dict[str, Any]) -> None:
    check_foretold(pronk.InferenceEngine.load(tiny(kind)), 2, n_ctx=300, **options)


@pytest.mark.parametrize("n", [1, 2, 4, 8])
@pytest.mark.parametrize("options", LAYOUTS, ids=layout_name)
def test_o01_permits_cost_what_was_foretold(
    plain: pronk.InferenceEngine, options: dict[str, Any], n: int
) -> None:
    """O01: however many permits, and however they use them, the estimate holds."""
    check_foretold(plain, n, n_ctx=512, **options)


@pytest.mark.parametrize("more", [{}, {"n_batch": 32}, {"n_cached": 0}, {"flash_attention": "on"}])
def test_every_option_shows(engine: pronk.InferenceEngine, more: dict[str, Any]) -> None:
    check_foretold(engine, 2, n_ctx=2000, **more)


def test_buffers_do_not_grow_behind_the_estimate(
    engine: pronk.InferenceEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """llama.cpp itself says, at the end of a context, when its buffers are not what they were."""
    caplog.set_level("DEBUG", logger="pronk")
    with pronk.InferenceScheduler(3, engine=engine, n_ctx=600) as scheduler:
        prompts = [[65 + i] * 200 for i in range(6)]
        pronk.generate_all(scheduler, prompts, max_tokens=300, temperature=0, ignore_eos=True)
    del scheduler
    gc.collect()
    _logging.flush()
    lines = [line for line in caplog.messages if "compute buffer size is" in line]
    assert lines != []
    assert [line for line in lines if "matches expectation" not in line] == []
    assert "does not match expectation" not in caplog.text


def test_cache_types_show(plain: pronk.InferenceEngine) -> None:
    def cache(**types: str) -> int:
        (cpu,) = plain.estimate_memory(1024, 2, n_cached=0, **types).devices
        assert cpu.device == "CPU"
        return cpu.kv

    full = cache(type_k="f32", type_v="f32")
    heads = plain.n_head_kv * int(plain.metadata["llama.attention.key_length"])
    assert full == 2 * 1024 * plain.n_layer * heads * 2 * 4
    assert cache() == full // 2
    assert cache(type_k="q8_0", type_v="q8_0") == full // 2 * 34 // 64
    assert cache(type_k="f32", type_v="f16") == full * 3 // 4


def test_an_estimate_allocates_nothing_and_is_a_record(plain: pronk.InferenceEngine) -> None:
    estimate = plain.estimate_memory(4096, 200, n_cached=0, type_k="f32", type_v="f32")
    assert estimate.devices[0].kv >= 800 << 20
    assert estimate.asdict()["max_concurrent"] == 200
    assert (estimate.layout, estimate.kv, estimate.type_k) == ("batched", "split", "f32")
    assert (estimate.n_ctx, estimate.n_ctx_reason) == (4096, "asked for")
    assert "pronk.MemoryEstimate(" in repr(estimate)
    assert estimate.devices[0].asdict().keys() >= {"device", "weights", "kv", "free"}
    with pytest.raises(AttributeError):
        estimate.n_ctx = 1  # type: ignore[misc]


def test_a_scheduler_without_a_pool_takes_nothing(plain: pronk.InferenceEngine) -> None:
    assert pronk.InferenceScheduler(2).memory() == []
    with pronk.InferenceScheduler(2, engine=plain, n_ctx=64) as scheduler:
        assert scheduler.memory() == []
        scheduler.generate("a", max_tokens=1).result(30)
        assert scheduler.memory()[0].kv > 0


def test_a_script_has_no_memory() -> None:
    model = ScriptedModel()
    assert model.engine.estimate_memory(64, 2).devices == []
    with pronk.InferenceScheduler("auto", engine=model.engine, n_ctx="auto") as scheduler:
        assert scheduler.generate("hello", max_tokens=8, temperature=0).result(30).text
        assert scheduler.statistics().n_ctx == 4096


RESIDENT = """
    import re, sys
    import pronk

    def dirty():
        with open("/proc/self/smaps_rollup") as file:
            return 1024 * int(re.search(r"Private_Dirty: +(\\d+)", file.read())[1])

    engine = pronk.InferenceEngine.load(sys.argv[1])
    options = dict(layout=sys.argv[2], n_threads=1, type_k="f32", type_v="f32", n_cached=0)
    if sys.argv[2] == "batched":
        options["kv"] = sys.argv[3]
    (foretold,) = engine.estimate_memory(32768, 4, **options).devices
    scheduler = pronk.InferenceScheduler(4)
    before = dirty()
    scheduler.init_pool(engine, 32768, **options)
    made = dirty() - before
    pronk.generate_all(scheduler, ["a", "b", "c", "d"], max_tokens=8, ignore_eos=True)
    print(foretold.kv, foretold.pool, made, dirty() - before)
    scheduler.close()
"""


@pytest.mark.parametrize("options", LAYOUTS, ids=layout_name)
def test_the_kernel_counts_as_much(tiny_plain: Path, child: Child, options: dict[str, Any]) -> None:
    """What becomes dirty is the cache at once, and the buffers and tables by and by."""
    if not Path("/proc/self/smaps_rollup").exists():
        pytest.skip("needs Linux")
    done = child(RESIDENT, tiny_plain, options["layout"], options.get("kv", ""))
    kv, pool, made, worked = map(int, done.stdout.split())
    assert kv > 100 << 20
    assert 0.9 * kv < made < 1.1 * pool
    assert made <= worked < 1.1 * pool


LIMITED = """
    import resource, sys
    import pronk

    engine = pronk.InferenceEngine.load(sys.argv[1])
    options = dict(layout=sys.argv[2], n_threads=1, n_cached=0, type_k="f32", type_v="f32")
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    limit = used + (int(sys.argv[3]) << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    def refused(n, n_ctx):
        scheduler = pronk.InferenceScheduler(n)
        try:
            scheduler.init_pool(engine, n_ctx, **options)
        except pronk.InsufficientMemoryError as error:
            return error
        finally:
            scheduler.close()
"""


@pytest.mark.parametrize("layout", ["batched", "isolated"])
def test_a_limit_of_address_space_is_an_error(tiny_any: Path, child: Child, layout: str) -> None:
    """`ulimit -v`: refused in words, what the words name works, and the process goes on."""
    code = (
        LIMITED
        + """
    fits = engine.estimate_memory(2**20, 100, **options).fits
    error = refused(100, 2**20)
    assert fits == (error is None)
    if fits:
        print("fits")
        sys.exit()
    print(error)
    assert error.need > error.have > 0
    assert (error.n_ctx or 0) < 2**20 and (error.max_concurrent or 0) < 100
    if error.n_ctx:
        assert f"n_ctx to {error.n_ctx}" in str(error)
        assert not refused(100, error.n_ctx)
    if error.max_concurrent:
        assert f"max_concurrent to {error.max_concurrent}" in str(error)
        assert not refused(error.max_concurrent, 2**20)
    with pronk.InferenceScheduler(2, engine=engine, n_ctx=64, **options) as scheduler:
        assert scheduler.generate("a", max_tokens=4, ignore_eos=True).result(20).tokens
    """
    )
    out = child(code, tiny_any, layout, 1024).stdout
    # A recurrent state is the same for a context of any length.
    assert "ulimit -v" in out or (out == "fits\n" and "recurrent" in tiny_any.name)


@pytest.mark.parametrize("megabytes", [300, 400, 600, 1000])
@pytest.mark.parametrize("layout", ["batched", "isolated"])
def test_what_auto_chooses_works_under_a_limit(
    tiny_plain: Path, child: Child, layout: str, megabytes: int
) -> None:
    code = (
        LIMITED
        + """
    options["n_cached"] = 2 if sys.argv[2] == "batched" else None
    try:
        scheduler = pronk.InferenceScheduler("auto", engine=engine, n_ctx="auto", **options)
        prompts = [[65 + i] * 200 for i in range(8)]
        done = pronk.generate_all(scheduler, prompts, max_tokens=8, ignore_eos=True)
    except pronk.InsufficientMemoryError as error:
        print("refused", error)
        sys.exit()
    assert all(len(completion.tokens) == 8 for completion in done)
    s = scheduler.statistics()
    assert s.max_concurrent_reason.startswith("auto: "), s
    assert s.n_ctx_reason.startswith("auto: "), s
    print("chose", s.max_concurrent, s.n_ctx, s.max_concurrent_reason, s.n_ctx_reason)
    scheduler.close()
    """
    )
    out = child(code, tiny_plain, layout, megabytes).stdout
    assert out.startswith("chose") or megabytes < 600, out


def test_auto_takes_all_of_a_small_model(plain: pronk.InferenceEngine) -> None:
    estimate = plain.estimate_memory("auto", "auto")
    assert estimate.n_ctx == plain.n_ctx_train
    assert estimate.n_ctx_reason == "auto: all that the model was trained on"
    assert 4 <= estimate.max_concurrent <= 32
    with pronk.InferenceScheduler("auto", engine=plain, n_ctx="auto") as scheduler:
        assert scheduler.max_concurrent == estimate.max_concurrent
        assert scheduler.generate("a", max_tokens=1).result(60).tokens
        s = scheduler.statistics()
        assert s.n_ctx == estimate.n_ctx
        assert s.max_concurrent_reason == estimate.max_concurrent_reason
        scheduler.resize(1)
        assert scheduler.statistics().max_concurrent_reason == "resized"


def test_reasons_of_what_was_asked_for(plain: pronk.InferenceEngine) -> None:
    with pronk.InferenceScheduler(2, engine=plain, n_ctx=64, n_cached=1) as scheduler:
        scheduler.generate("a", max_tokens=1).result(30)
        s = scheduler.statistics()
    assert (s.max_concurrent_reason, s.n_ctx_reason) == ("asked for", "asked for")
    assert (s.n_cached, s.n_cached_reason) == (1, "asked for")


def test_a_model_file_that_is_gone(tiny_plain: Path, tmp_path: Path) -> None:
    """Only the estimate reads it again; a pool can do without."""
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(tiny_plain.read_bytes())
    engine = pronk.InferenceEngine.load(copy)
    copy.unlink()
    expected = pronk.InferenceEngine.load(tiny_plain).estimate_memory(512, 2)
    estimate = engine.estimate_memory(512, 2)
    assert estimate.devices[0].kv == expected.devices[0].kv
    with pronk.InferenceScheduler(2, engine=engine, n_ctx=512) as scheduler:
        assert scheduler.generate("a", max_tokens=1).result(30).tokens


def test_reading_a_model_that_does_not_fit(tiny_plain: Path, child: Child) -> None:
    """Read into memory it would end the process; mapped it needs address space only."""
    code = """
        import os, resource, sys
        import pronk

        # Room for zeros at the end, of which the disk keeps none.
        os.truncate(sys.argv[1], 1 << 42)
        try:
            pronk.InferenceEngine.load(sys.argv[1], use_mmap=False)
        except pronk.InsufficientMemoryError as error:
            assert error.need == 1 << 42, error
            print(error)
        resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))
        try:
            pronk.InferenceEngine.load(sys.argv[1])
        except pronk.InsufficientMemoryError as error:
            print("mapped:", error)
    """
    copy = tiny_plain.with_name("large.gguf")
    copy.write_bytes(tiny_plain.read_bytes())
    try:
        out = child(code, copy).stdout
        assert "use_mmap" in out
        assert "mapped:" in out
    finally:
        copy.unlink()


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"n_ctx": "much"}, TypeError),
        ({"n_ctx": -1}, ValueError),
        ({"n_ctx": 1}, ValueError),
        ({"n_ctx": 1.5}, TypeError),
        ({"n_ctx": True}, TypeError),
        ({"n_ctx": 2**40}, ValueError),
        ({"max_concurrent": "many"}, TypeError),
        ({"max_concurrent": 0}, ValueError),
        ({"max_concurrent": -1}, ValueError),
        ({"max_concurrent": 4097}, ValueError),
        ({"max_concurrent": None}, TypeError),
        ({"max_concurrent": 257}, ValueError),
        ({"max_concurrent": 256, "n_ctx": 2**26}, ValueError),
        ({"layout": "round"}, ValueError),
        ({"kv": "auto?"}, ValueError),
        ({"type_k": "f17"}, ValueError),
        ({"type_v": "q8_0", "flash_attention": "off"}, ValueError),
        ({"n_cached": -1}, ValueError),
        ({"n_batches": 1}, TypeError),
    ],
    ids=str,
)
def test_bad_arguments(
    plain: pronk.InferenceEngine, keywords: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        plain.estimate_memory(**keywords)
    assert isinstance(caught.value, pronk.Error)
    assert "expected" in str(caught.value)


def test_auto_needs_an_engine(plain: pronk.InferenceEngine) -> None:
    with pytest.raises(pronk.InvalidArgumentError, match="without an engine"):
        pronk.InferenceScheduler("auto")
    scheduler = pronk.InferenceScheduler(2)
    for value in ("auto", "many", -1):
        with pytest.raises(pronk.Error):
            scheduler.resize(value)  # type: ignore[arg-type]
    with pytest.raises(pronk.InvalidTypeError):
        scheduler.init_pool(plain, "much")  # type: ignore[arg-type]
    scheduler.init_pool(plain, "auto")
    assert scheduler.statistics().n_ctx == plain.n_ctx_train


def test_models_without_memory_have_no_estimate(tiny: Tiny) -> None:
    for engine in (
        pronk.InferenceEngine.load(tiny("encoder")),
        pronk.InferenceEngine.load(tiny("vocabulary"), vocab_only=True),
    ):
        with pytest.raises(pronk.InvalidArgumentError, match="engine"):
            engine.estimate_memory()
        with pytest.raises(pronk.InvalidArgumentError, match="engine"):
            pronk.InferenceScheduler("auto", engine=engine)


def test_the_error_goes_to_another_process() -> None:
    error = pronk.InsufficientMemoryError("init_pool: ...", 3, 2, 256, None)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.need, copy.have, copy.n_ctx) == ("init_pool: ...", 3, 2, 256)
    assert copy.max_concurrent is None
    assert pronk.InsufficientMemoryError("x").need is None
