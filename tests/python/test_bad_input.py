"""Bad arguments: each is a typed error that says what was got, and nothing is lost by it."""

from __future__ import annotations

import array
import ctypes
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pronk
from pronk.testing import ScriptedModel

BAD = (pronk.InvalidArgumentError, pronk.InvalidTypeError)


@pytest.fixture
def scheduler() -> Iterator[pronk.InferenceScheduler]:
    model = ScriptedModel()
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64) as scheduler:
        yield scheduler
        # Whatever was refused left nothing behind.
        with scheduler.acquire() as permit:
            assert permit.generate("abc", max_tokens=4).result(20).usage.completion_tokens <= 4
        assert scheduler.statistics().failed == 0


@pytest.mark.parametrize(
    "value", [0, -1, 4097, 10**9, -(2**31) - 1, 2**31, 2**64, 10**400, np.int64(0)]
)
def test_max_concurrent_out_of_range(value: Any) -> None:
    expected = r"max_concurrent: got .*, expected an integer in \[1, 4096\], "
    with pytest.raises(pronk.InvalidArgumentError, match=expected):
        pronk.InferenceScheduler(value)
    scheduler = pronk.InferenceScheduler(1)
    with pytest.raises(ValueError, match=expected):
        scheduler.resize(value)
    assert scheduler.max_concurrent == 1


@pytest.mark.parametrize(
    "value", [True, False, "2", b"2", 1.5, 2.0, None, [2], 1e9, math.nan, object()]
)
def test_max_concurrent_of_a_wrong_type(value: Any) -> None:
    expected = r"max_concurrent: got .* \(\w+\), expected an integer in \[1, 4096\], "
    with pytest.raises(pronk.InvalidTypeError, match=expected):
        pronk.InferenceScheduler(value)
    with pytest.raises(TypeError, match=expected):
        pronk.InferenceScheduler(1).resize(value)


def test_the_message_says_what_was_got() -> None:
    with pytest.raises(pronk.InvalidArgumentError) as caught:
        pronk.InferenceScheduler(0)
    assert str(caught.value) == (
        "max_concurrent: got 0, expected an integer in [1, 4096], "
        "pass how many inferences may run at once, or 'auto'"
    )
    with pytest.raises(pronk.InvalidTypeError, match=r"got '2' \(str\)"):
        pronk.InferenceScheduler("2")  # type: ignore[arg-type]


def test_what_can_be_an_index_is_an_integer() -> None:
    assert pronk.InferenceScheduler(np.int32(3)).max_concurrent == 3


@pytest.mark.parametrize("value", [-1, -0.001, math.nan, math.inf, -math.inf, -(10**400)])
def test_timeout_out_of_range(value: float) -> None:
    scheduler = pronk.InferenceScheduler(1)
    with pytest.raises(pronk.InvalidArgumentError, match=r"timeout: got .* seconds >= 0"):
        scheduler.acquire(timeout=value)
    with pytest.raises(pronk.InvalidArgumentError, match="timeout"):
        scheduler.close(timeout=value)
    assert scheduler.active_count == 0
    assert not scheduler.closed


@pytest.mark.parametrize("value", [True, "1", [1], 1j, object()])
def test_timeout_of_a_wrong_type(value: Any) -> None:
    scheduler = pronk.InferenceScheduler(1)
    with pytest.raises(pronk.InvalidTypeError, match="timeout: got"):
        scheduler.acquire(timeout=value)
    assert scheduler.active_count == 0


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (1001, pronk.InvalidArgumentError),
        (-1001, pronk.InvalidArgumentError),
        (True, pronk.InvalidTypeError),
        (1.0, pronk.InvalidTypeError),
        ("1", pronk.InvalidTypeError),
        (None, pronk.InvalidTypeError),
    ],
)
def test_priority(value: Any, error: type[Exception]) -> None:
    scheduler = pronk.InferenceScheduler(1)
    for call in (scheduler.acquire, scheduler.acquire_async):
        with pytest.raises(error, match="priority: got"):
            call(priority=value)
    assert scheduler.active_count == 0


@pytest.mark.parametrize("value", [-1, True, 1.0, "1"])
def test_max_waiting(value: Any) -> None:
    with pytest.raises(BAD, match="max_waiting: got"):
        pronk.InferenceScheduler(1, max_waiting=value)


@pytest.mark.parametrize("value", ["model.gguf", 1, object()])
def test_engine(value: Any) -> None:
    with pytest.raises(pronk.InvalidTypeError, match="engine: got"):
        pronk.InferenceScheduler(1, engine=value)
    with pytest.raises(pronk.InvalidTypeError, match="engine: got"):
        pronk.InferenceScheduler(1).init_pool(value)


def test_options_of_a_pool_need_an_engine() -> None:
    for options in ({"n_ctx": 64}, {"n_batch": 8}):
        with pytest.raises(pronk.InvalidArgumentError, match="engine: got None"):
            pronk.InferenceScheduler(1, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("clock", [1, object()])
def test_clock(clock: Any) -> None:
    with pytest.raises(pronk.InvalidTypeError, match="clock: got"):
        pronk.InferenceScheduler(1, clock=clock)


BAD_POOL_OPTIONS: list[dict[str, Any]] = [
    {"n_ctx": 0},
    {"n_ctx": 1},
    {"n_ctx": -1},
    {"n_ctx": 2**31},
    {"n_ctx": True},
    {"n_ctx": "64"},
    {"n_ctx": 64.0},
    {"layout": "other"},
    {"layout": 1},
    {"layout": "isol\udc80ated"},
    {"kv": "other"},
    {"n_batch": 0},
    {"n_batch": 1.5},
    {"n_threads": 0},
    {"n_threads": 10**9},
    {"flash_attention": "maybe"},
    {"type_k": "f17"},
    {"type_v": None},
    {"n_cached": -1},
    {"max_step_ms": 0},
    {"max_step_ms": math.nan},
    {"max_step_ms": "50"},
]


@pytest.mark.parametrize("options", BAD_POOL_OPTIONS, ids=repr)
def test_pool_options(options: dict[str, Any]) -> None:
    model = ScriptedModel()
    name = next(iter(options))
    scheduler = pronk.InferenceScheduler(1)
    with pytest.raises(BAD, match=f"^{name}: got"):
        scheduler.init_pool(model.engine, **options)
    # The scheduler is as good as before.
    scheduler.init_pool(model.engine, n_ctx=64)
    with scheduler.acquire() as permit:
        permit.generate("abc", max_tokens=1).result(20)
    scheduler.close()
    with pytest.raises(BAD, match=f"^{name}: got"):
        pronk.InferenceScheduler(1, engine=model.engine, **options)


def test_a_second_pool_is_refused() -> None:
    model = ScriptedModel()
    scheduler = pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64)
    with scheduler, pytest.raises(pronk.InvalidArgumentError, match="init_pool: got"):
        scheduler.init_pool(model.engine, n_ctx=64)


class BrokenIndex:
    def __index__(self) -> int:
        raise LookupError("broken")


class BrokenRepr:
    def __repr__(self) -> str:
        raise LookupError("broken")


def bad_prompts(n_vocab: int) -> list[Any]:
    return [
        [],
        (),
        [-1],
        [n_vocab],
        [2**31],
        [2**64],
        [10**5000],
        [None],
        [1.5],
        [1, None, 2],
        ["a"],
        [True],
        [[1]],
        None,
        1,
        1.5,
        True,
        b"bytes",
        bytearray(b"bytes"),
        {1, 2},
        {1: 2},
        iter([1]),
        object(),
        "lone \udc80 surrogate",
        "\ud800",
        np.array([], dtype=np.int32),
        np.array([-1]),
        np.array([n_vocab]),
        np.array([2**40]),
        np.array([2**63], dtype=np.uint64),
        np.array([1.5]),
        np.array([True]),
        np.array([[1, 2]]),
        np.array(1),
        array.array("d", [1.0]),
        [BrokenRepr()],
    ]


def test_prompts(scheduler: pronk.InferenceScheduler) -> None:
    assert scheduler.engine is not None
    with scheduler.acquire() as permit:
        for prompt in bad_prompts(scheduler.engine.n_vocab):
            for generate in (permit.generate, scheduler.generate):
                with pytest.raises(BAD, match=r"^(prompt|text): got"):
                    generate(prompt, max_tokens=1)
        with pytest.raises(LookupError, match="broken"):
            permit.generate([BrokenIndex()], max_tokens=1)  # type: ignore[list-item]


GOOD_PROMPTS: list[Any] = [
    [1, 2, 3],
    (1, 2, 3),
    range(1, 4),
    array.array("i", [1, 2, 3]),
    array.array("q", [1, 2, 3]),
    array.array("B", [1, 2, 3]),
    np.array([1, 2, 3], dtype=np.int32),
    np.array([1, 2, 3], dtype=np.uint16),
    np.array([1, 0, 2, 0, 3, 0])[::2],
    np.array([3, 2, 1])[::-1],
    [np.int64(1), 2, 3],
]


@pytest.mark.parametrize("prompt", GOOD_PROMPTS, ids=lambda p: type(p).__name__)
def test_any_sequence_of_ints_is_a_prompt(scheduler: pronk.InferenceScheduler, prompt: Any) -> None:
    expected = scheduler.generate([1, 2, 3], max_tokens=4, temperature=0).result(20)
    assert expected.usage.prompt_tokens == 3
    got = scheduler.generate(prompt, max_tokens=4, temperature=0).result(20)
    assert got.tokens == expected.tokens


@pytest.mark.parametrize("text", ["a\0b", "\0", "\N{GRINNING FACE}", "\uffff"])
def test_odd_text_is_text(scheduler: pronk.InferenceScheduler, text: str) -> None:
    assert scheduler.engine is not None
    tokens = scheduler.engine.tokenize(text)
    assert scheduler.engine.detokenize(tokens) == text
    done = scheduler.generate(text, max_tokens=1).result(20)
    assert done.usage.prompt_tokens == len(tokens)


BAD_PARAMS: list[dict[str, Any]] = [
    {"max_tokens": -1},
    {"max_tokens": 2**31},
    {"max_tokens": True},
    {"max_tokens": 1.0},
    {"max_tokens": "1"},
    {"temperature": -0.1},
    {"temperature": 1e300},
    {"temperature": math.nan},
    {"temperature": math.inf},
    {"temperature": "0"},
    {"temperature": None},
    {"temperature": True},
    {"top_k": -1},
    {"top_k": 1.5},
    {"top_p": 0},
    {"top_p": 1.1},
    {"min_p": -0.1},
    {"min_p": 1.1},
    {"repeat_penalty": 0},
    {"repeat_penalty": -1},
    {"frequency_penalty": 1e9},
    {"presence_penalty": math.nan},
    {"penalty_last_n": -2},
    {"seed": -1},
    {"seed": 2**64},
    {"seed": True},
    {"seed": 1.0},
    {"seed": "1"},
    {"logit_bias": [1]},
    {"logit_bias": {-1: 1.0}},
    {"logit_bias": {10**6: 1.0}},
    {"logit_bias": {2**40: 1.0}},
    {"logit_bias": {"1": 1.0}},
    {"logit_bias": {True: 1.0}},
    {"logit_bias": {1: math.nan}},
    {"logit_bias": {1: "x"}},
    {"ignore_eos": 1},
    {"ignore_eos": None},
    {"stop": ""},
    {"stop": ["a", ""]},
    {"stop": [1]},
    {"stop": 1},
    {"stop": b"a"},
    {"stop": {"a"}},
    {"stop": "\ud800"},
    {"logprobs": -1},
    {"logprobs": 1.5},
    {"logprobs": "1"},
    {"cache": 0},
    {"cache_scope": None},
    {"cache_scope": 1},
]


@pytest.mark.parametrize("params", BAD_PARAMS, ids=repr)
def test_generation_params(scheduler: pronk.InferenceScheduler, params: dict[str, Any]) -> None:
    name = next(iter(params))
    with scheduler.acquire() as permit:
        for generate in (permit.generate, scheduler.generate):
            with pytest.raises(BAD, match=f"^{name}"):
                generate("abc", **params)


GOOD_PARAMS: list[dict[str, Any]] = [
    {"max_tokens": 0},
    {"max_tokens": None},
    {"temperature": 0},
    {"temperature": np.float32(0.5)},
    {"top_k": 0},
    {"top_p": 1},
    {"seed": 0},
    {"seed": 2**64 - 1},
    {"seed": None},
    {"logit_bias": {}},
    {"logit_bias": None},
    {"logit_bias": {1: -math.inf, 2: 3}},
    {"stop": []},
    {"stop": None},
    {"stop": ("a", "b")},
    {"logprobs": None},
    {"logprobs": False},
    {"logprobs": True},
    {"logprobs": 3},
    {"penalty_last_n": -1},
]


@pytest.mark.parametrize("params", GOOD_PARAMS, ids=repr)
def test_limits_of_generation_params(
    scheduler: pronk.InferenceScheduler, params: dict[str, Any]
) -> None:
    scheduler.generate("abc", **({"max_tokens": 2} | params)).result(20)


def test_unknown_keywords_name_close_ones(scheduler: pronk.InferenceScheduler) -> None:
    calls: list[Callable[..., object]] = [scheduler.generate]
    with scheduler.acquire() as permit:
        for generate in (*calls, permit.generate):
            with pytest.raises(TypeError, match=r"'temprature'.*did you mean temperature"):
                generate("abc", temprature=0)
            with pytest.raises(
                pronk.InvalidTypeError, match=r"unknown keyword 'xyzzy'.*max_tokens"
            ):
                generate("abc", xyzzy=0)
    with pytest.raises(TypeError, match="did you mean n_threads"):
        pronk.InferenceScheduler(1).init_pool(scheduler.engine, n_thread=1)  # type: ignore[call-arg, arg-type]


@pytest.mark.parametrize("value", ["half", -2, 1.5, True, None, 2**31])
def test_n_gpu_layers(value: Any) -> None:
    with pytest.raises(BAD, match="n_gpu_layers: got"):
        pronk.InferenceEngine.load("missing.gguf", n_gpu_layers=value)


@pytest.mark.parametrize("name", ["use_mmap", "use_mlock", "check_tensors", "vocab_only", "probe"])
def test_switches(name: str) -> None:
    for value in (1, None, "yes"):
        with pytest.raises(pronk.InvalidTypeError, match=f"{name}: got"):
            pronk.InferenceEngine.load("missing.gguf", **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [1, "yes", 0.5])
def test_progress(value: Any) -> None:
    with pytest.raises(pronk.InvalidTypeError, match="progress: got"):
        pronk.InferenceEngine.load("missing.gguf", progress=value)


@pytest.mark.parametrize("value", [None, 1, 1.5, [], "a\0b", b"a\0b"])
def test_paths(value: Any) -> None:
    with pytest.raises(BAD, match="path: got"):
        pronk.InferenceEngine.load(value)


def test_detokenize(scheduler: pronk.InferenceScheduler) -> None:
    engine = scheduler.engine
    assert engine is not None
    assert engine.detokenize([]) == ""
    for tokens in ([-1], [engine.n_vocab], [2**31], [None], [1.5], "text", b"bytes", 1, None):
        with pytest.raises(BAD, match=r"^tokens(\[0\])?: got"):
            engine.detokenize(tokens)  # type: ignore[arg-type]


def test_tokenize(scheduler: pronk.InferenceScheduler) -> None:
    engine = scheduler.engine
    assert engine is not None
    for text in (None, 1, b"bytes", ["a"], "\ud800"):
        with pytest.raises(BAD, match="text: got"):
            engine.tokenize(text)  # type: ignore[arg-type]
    with pytest.raises(pronk.InvalidTypeError, match="add_special: got"):
        engine.tokenize("a", add_special=1)  # type: ignore[arg-type]


NEVER_INITIALISED = """
import sys, warnings
import pronk
warnings.simplefilter("ignore")
KEPT = ("__enter__", "__aenter__", "__await__", "__repr__")
kind = getattr(pronk, sys.argv[1])
for _ in range(3):
    try:
        thing = kind.__new__(kind)
    except TypeError:
        break  # the best there is
    for name in dir(kind):
        if name.startswith("__") and name not in KEPT:
            continue
        for arguments in ((), (None,), (None, None)):
            try:
                getattr(thing, name)(*arguments)
            except Exception:
                pass
print("ok")
"""


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in pronk.__all__
        if isinstance(kind := getattr(pronk, name), type) and not issubclass(kind, BaseException)
    ],
)
def test_objects_that_were_never_initialised(name: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", NEVER_INITIALISED, name],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (child.returncode, child.stdout) == (0, "ok\n"), child.stderr


def test_ctypes_arrays_are_tokens() -> None:
    engine = ScriptedModel().engine
    assert engine.detokenize((ctypes.c_int * 3)(97, 98, 99)) == "abc"
