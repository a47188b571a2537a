"""Guards against what can end the process: GUARDS.md says which entry has which test."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from fixtures_models import Tiny
from tiny_models import tiny_model

import pronk
from pronk.testing import ScriptedModel

SOURCES = Path(__file__).parents[2] / "cpp"
GUARDS = Path(__file__).parents[1] / "GUARDS.md"

# What of llama.cpp ends the process for some argument, and is never needed: pronk does it itself,
# or does without.
NEVER_CALLED = [
    r"llama_memory_seq_(add|div|keep)\(",  # aborts where positions cannot be shifted
    r"llama_(set_)?sampler(_\w+)?\(",  # aborts on a row without logits, and on foreign samplers
    r"common_sampler_\w+\(",
    r"llama_perf_sampler\w*\(",
    r"llama_token_is_unused\w*\(",
    r"common_params_parse\w*\(",  # calls exit()
    r"common_(context_seq_rm|prompt_checkpoint|ngram_cache_load)\w*\(",
    r"llama_(state|adapter|set_adapter)\w*\(",
    r"llama_encode\(",
    r"llama_grammar_init\w*\(",  # prints, and recurses without bound
    r"common_chat_parse\(",  # throws on what does not conform
]


@pytest.mark.parametrize("pattern", NEVER_CALLED)
def test_never_called(pattern: str) -> None:
    if not SOURCES.exists():
        pytest.skip("needs the sources")
    files = [*SOURCES.glob("src/*"), *SOURCES.glob("bindings/*")]
    assert len(files) > 100
    for path in files:
        if path.suffix in (".cpp", ".h"):
            assert not re.search(pattern, path.read_text(encoding="utf-8")), path


def test_only_the_steady_clock_is_read() -> None:
    """What is set or jumps has no part in any wait, timeout or age."""
    if not SOURCES.exists():
        pytest.skip("needs the sources")
    for path in [*SOURCES.glob("src/*"), *SOURCES.glob("bindings/*"), *SOURCES.glob("include/*/*")]:
        if path.suffix in (".cpp", ".h"):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"system_clock|gettimeofday|CLOCK_REALTIME|\btime\(", text), path


def test_every_test_that_is_named_exists() -> None:
    """A name in GUARDS.md is a test of this directory, of the C++ tests or a kind of the fuzzer."""
    text = GUARDS.read_text(encoding="utf-8")
    here = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py"))
    cpp = "".join(
        path.read_text(encoding="utf-8") for path in (GUARDS.parent / "cpp").glob("*.cpp")
    )
    kinds = {path.stem for path in (GUARDS.parent / "fuzz" / "kinds").glob("*.py")}
    names = re.findall(r"(python|cpp|fuzz)/ ?`([a-z0-9_]+)`", text)
    assert len(names) > 40
    for group, name in names:
        if group == "python":
            assert f"def test_{name}(" in here, name
        elif group == "cpp":
            assert f"TEST({name})" in cpp, name
        else:
            assert name in kinds, name


@pytest.fixture(scope="module")
def scheduler() -> Iterator[pronk.InferenceScheduler]:
    with pronk.InferenceScheduler(1, engine=ScriptedModel().engine, n_ctx=64) as scheduler:
        yield scheduler


NUMBERS = [
    "temperature",
    "top_p",
    "min_p",
    "repeat_penalty",
    "frequency_penalty",
    "presence_penalty",
]
COUNTS = ["max_tokens", "top_k", "penalty_last_n", "seed", "logprobs"]
NO_NUMBERS: list[Any] = [math.nan, -math.nan, math.inf, -math.inf, 1e30, -1e30, 1e300, 10**400]
NO_NUMBERS += [-(10**400), "1", b"1", "nan", 1j, [1], {}, True, object(), int]
NO_COUNTS: list[Any] = [-2, -(2**31), -(2**63), 2**64, 10**400, -(10**400), math.nan, math.inf]
NO_COUNTS += [-math.inf, 1.5, 1.0, "1", b"1", 1j, [1], {}, object(), int]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("name", NUMBERS)
def test_nonsense_for_a_number_is_refused_by_name(
    scheduler: pronk.InferenceScheduler, name: str, value: Any
) -> None:
    with pytest.raises(
        (pronk.InvalidArgumentError, pronk.InvalidTypeError), match=f"^{name}: got "
    ):
        scheduler.generate("abc", max_tokens=1, **{name: value})


@pytest.mark.parametrize("value", NO_COUNTS, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("name", COUNTS)
def test_nonsense_for_a_count_is_refused_by_name(
    scheduler: pronk.InferenceScheduler, name: str, value: Any
) -> None:
    with pytest.raises(
        (pronk.InvalidArgumentError, pronk.InvalidTypeError), match=f"^{name}: got "
    ):
        scheduler.generate("abc", **{"max_tokens": 1, name: value})


@pytest.mark.parametrize("value", NO_NUMBERS[:3], ids=repr)
def test_nonsense_in_a_logit_bias_is_refused_by_name(
    scheduler: pronk.InferenceScheduler, value: Any
) -> None:
    for bias in ({1: value}, {value: 1.0}):
        with pytest.raises(
            (pronk.InvalidArgumentError, pronk.InvalidTypeError), match=r"^logit_bias: got "
        ):
            scheduler.generate("abc", max_tokens=1, logit_bias=bias)


def asserting_model(folder: Path, where: str) -> Path:
    """A file that passes our checks and trips over an assertion of llama.cpp."""
    sys.path.append(str(GUARDS.parent))
    from fuzz import gguf_file

    file = gguf_file.read(tiny_model("plain", folder).read_bytes())
    if where == "load":
        # An architecture that asserts that it has experts.
        file.set("general.architecture", gguf_file.STRING, b"llada-moe")
        file.set("llama.expert_feed_forward_length", 4, 96)
        for pair in file.pairs:
            if pair.key.startswith(b"llama."):
                pair.key = b"llada-moe." + pair.key.removeprefix(b"llama.")
    else:
        # Values of another size than keys, of which this architecture's graph knows nothing.
        file.set("llama.attention.value_length", 4, 32)
        for tensor in file.tensors:
            if tensor.name.endswith(b"attn_v.weight"):
                tensor.dims[1] //= 2
                tensor.data = tensor.data[: len(tensor.data) // 2]
    path = folder / f"asserts-{where}.gguf"
    path.write_bytes(gguf_file.write(file))
    return path


@pytest.mark.skipif(os.name != "posix", reason="needs the unwinding of POSIX systems")
def test_an_assertion_is_an_error_where_nothing_is_computed(
    tmp_path: Path, tiny_plain: Path, child: Child
) -> None:
    child(
        """
        import sys
        import pronk

        for _ in range(5):
            try:
                pronk.InferenceEngine.load(sys.argv[1])
            except pronk.ModelLoadError as error:
                assert "GGML_ASSERT" in str(error), error
            else:
                raise AssertionError("loaded")
            engine = pronk.InferenceEngine.load(sys.argv[2])
            for layout in ("batched", "isolated"):
                with pronk.InferenceScheduler(2) as scheduler:
                    try:
                        scheduler.init_pool(engine, n_ctx=64, layout=layout)
                    except pronk.BackendError as error:
                        assert "GGML_ASSERT" in str(error), error
                    else:
                        raise AssertionError("a pool was made")
        # All is as it was.
        engine = pronk.InferenceEngine.load(sys.argv[3])
        with pronk.InferenceScheduler(2, engine=engine, n_ctx=64) as scheduler:
            assert len(scheduler.generate("x", max_tokens=4, ignore_eos=True).result().tokens) == 4
        """,
        asserting_model(tmp_path, "load"),
        asserting_model(tmp_path, "context"),
        tiny_plain,
    )


def test_a_consumer_that_never_reads_holds_no_more_than_its_context() -> None:
    """What was not read yet is one generation's text, which max_tokens and the context bound."""
    model = ScriptedModel()
    with pronk.InferenceScheduler(2, engine=model.engine, n_ctx=256) as scheduler:
        permit = scheduler.acquire()
        unread = permit.generate("abc", ignore_eos=True)
        # It ends by itself, without a reader, and the other permit's streams go on.
        other = scheduler.generate("other", max_tokens=20, temperature=0, ignore_eos=True)
        assert other.result(20).text == model.expected_text("other", 20)
        done = unread.result(20)
        assert done.finish_reason == "length"
        assert done.usage.prompt_tokens + done.usage.completion_tokens <= 256
        assert len("".join(unread)) == len(done.text)
        permit.release()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
@pytest.mark.parametrize("kind", ["plain", "recurrent"])
def test_allocation_fails_at_every_stage(tiny: Tiny, kind: str, child: Child) -> None:
    """A limit of address space, raised step by step until all works: an error each time before."""
    finished = child(
        """
        import os, resource, sys
        import pronk

        def attempt():
            engine = pronk.InferenceEngine.load(sys.argv[1], use_mmap=False)
            with pronk.InferenceScheduler(2, engine=engine, n_ctx=512, n_threads=2) as scheduler:
                running = [scheduler.generate(f"{i}", max_tokens=4) for i in range(4)]
                for generation in running:
                    generation.result(20)

        attempt()
        page = os.sysconf("SC_PAGE_SIZE")
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        outcomes = []
        for left in [*range(0, 16, 2), *(1 << shift for shift in range(4, 13))]:
            in_use = int(open("/proc/self/statm").read().split()[0]) * page
            resource.setrlimit(resource.RLIMIT_AS, (in_use + (left << 20), hard))
            try:
                attempt()
                outcomes.append("ok")
            except MemoryError as error:
                outcomes.append(type(error).__name__)
            except pronk.BackendError as error:
                outcomes.append("BackendError")
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, hard))
        attempt()
        print(*outcomes)
        """,
        tiny(kind),  # type: ignore[arg-type]
    )
    outcomes = finished.stdout.split()
    assert "ok" in outcomes
    assert "InsufficientMemoryError" in outcomes or "BackendError" in outcomes, outcomes
