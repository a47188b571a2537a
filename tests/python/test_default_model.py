"""Greedy output on the default model equals llama.cpp's own, token for token.

The reference is `tests/cpp/reference_greedy.cpp`: llama.h only, nothing of pronk. A fresh context
per prompt, one sequence, the prompt in chunks of `N_UBATCH` tokens, then one token at a time, each
the first of the largest logits. It is linked with the same llama.cpp and runs on the same machine,
without flash attention and with a KV cache of float32.

- Layout "isolated" with these settings does the same arithmetic in the same order: tokens are
  equal, and so are the logits, to the digits that a log probability keeps.
- Layout "batched" cuts prompts differently and computes for several requests at once, which changes
  the rounding: the reference itself moves by 0.14 when it takes a prompt token by token. Tokens are
  equal up to a near-tie, a step at which the logit of the token chosen is within a tolerance of the
  best one by the reference's own logits; from there on both texts are right.
- The default settings round more: their KV cache is of float16. The same rule, a wider tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from reference_program import GreedyRun, ReferenceProgram

import pronk

N_PREDICT = 12
# One thread: compute threads that wait for each other take for ever on a loaded machine.
N_THREADS = 1
N_UBATCH = 128
N_CTX = 1024

# Of the distance between two logits. Seen were at most 0, 0.2 and 0.45; that of the two best is
# typically between 0.1 and 3.
EXACT_TOLERANCE = 1e-3
BATCHED_TOLERANCE = 0.5
DEFAULT_TOLERANCE = 1.0

PARAGRAPH = (
    "The ship had been at sea for eleven weeks when the wind died. At first nobody minded. The "
    "cook baked bread, the carpenter mended chairs, and the captain read aloud from a book about "
    "birds. "
)

PROMPTS = [
    "A",
    "Hello",
    "\n",
    "7",
    "Once upon a time",
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "for (int i = 0; i < n; ++i) {\n  sum +=",
    "SELECT name, count(*) FROM agents WHERE",
    '{"name": "Ada", "born": 1815, "languages": ["',
    "1. apples\n2. bread\n3. cheese\n4.",
    "- [x] wash\n- [x] dry\n- [ ] ",
    "Die Donau ist der zweitgrößte Fluss in",
    "日本の首都は",
    "\N{LLAMA}\N{GRINNING FACE} означает",
    "3, 6, 9, 12, 15, 18,",
    "<|im_start|>user\nName a colour.<|im_end|>\n<|im_start|>assistant\n",
    PARAGRAPH,  # half a chunk
    PARAGRAPH * 4 + "On the next morning",  # more than one chunk
    PARAGRAPH * 16 + "On the next morning",  # about 700 tokens
]


@pytest.fixture(scope="module")
def path() -> Path:
    return Path(pronk.default_model())


@pytest.fixture(scope="module")
def engine(path: Path) -> pronk.InferenceEngine:
    return pronk.InferenceEngine.load(path, n_gpu_layers=0)


@pytest.fixture(scope="module")
def expected(path: Path, reference: ReferenceProgram) -> list[GreedyRun]:
    """What llama.cpp says, in the order of PROMPTS."""
    return reference.greedy(
        path, PROMPTS, n_predict=N_PREDICT, n_threads=N_THREADS, n_ubatch=N_UBATCH, top=4
    )


def generate(
    engine: pronk.InferenceEngine, runs: Sequence[GreedyRun], **options: Any
) -> list[pronk.Completion]:
    """The completions of all prompts, asked for at once."""
    with pronk.InferenceScheduler(
        4, engine=engine, n_ctx=N_CTX, n_threads=N_THREADS, **options
    ) as scheduler:
        generations = [
            scheduler.generate(run.prompt_tokens, max_tokens=N_PREDICT, temperature=0, logprobs=4)
            for run in runs
        ]
        return [generation.result(240) for generation in generations]


def exact_settings(**options: Any) -> dict[str, Any]:
    """Those of the reference."""
    return {
        "n_batch": N_UBATCH,
        "flash_attention": "off",
        "type_k": "f32",
        "type_v": "f32",
        **options,
    }


def tokens_of(done: pronk.Completion, run: GreedyRun) -> list[int]:
    """As the reference counts them: with the end-of-generation token, which usage leaves out."""
    ended = done.finish_reason == "stop" and run.finish_reason == "stop"
    return [*done.tokens, run.tokens[-1]] if ended else done.tokens


def check(done: pronk.Completion, run: GreedyRun, tolerance: float) -> int:
    """Compare up to the first near-tie; return how many tokens were equal."""
    tokens, entries = tokens_of(done, run), done.logprobs or []
    for step in count():
        if step == len(run.tokens):
            assert (tokens, done.finish_reason) == (run.tokens, run.finish_reason)
            return step
        logits = dict(run.top[step])
        (best, high), (second, low), *_ = run.top[step]
        got = dict(entries[step].top) if step < len(entries) else {}
        if best in got and second in got:
            change = (got[best] - got[second]) - (high - low)
            assert abs(change) < tolerance, f"step {step}: logits moved by {change}"
        token = tokens[step] if step < len(tokens) else None
        if token != best:
            # Where the other text ended here, the end token is what was chosen.
            gap = high - (logits.get(token, float("-inf")) if token is not None else low)
            assert gap < tolerance, f"step {step}: token {token}, whose logit is {gap} below"
            return step
    raise AssertionError("not reached")


def test_prompts_are_of_mixed_length(expected: list[GreedyRun]) -> None:
    lengths = [len(run.prompt_tokens) for run in expected]
    assert len(lengths) == 20
    assert min(lengths) == 1
    assert 600 <= max(lengths) <= 800
    assert any(N_UBATCH < length < 2 * N_UBATCH for length in lengths)


def test_text_is_tokenized_as_llama_cpp_does(
    engine: pronk.InferenceEngine, expected: list[GreedyRun]
) -> None:
    for prompt, run in zip(PROMPTS, expected, strict=True):
        assert engine.tokenize(prompt, parse_special=True) == run.prompt_tokens


def test_isolated_is_exact(engine: pronk.InferenceEngine, expected: list[GreedyRun]) -> None:
    completions = generate(engine, expected, **exact_settings(layout="isolated"))
    for prompt, done, run in zip(PROMPTS, completions, expected, strict=True):
        assert tokens_of(done, run) == run.tokens, prompt
        assert done.finish_reason == run.finish_reason, prompt
        # Of a character that has not come whole, the reference shows the part.
        assert run.text.rstrip("\ufffd") == done.text.rstrip("\ufffd"), prompt
        assert check(done, run, EXACT_TOLERANCE) == len(run.tokens), prompt


def test_batched_is_equal_up_to_a_near_tie(
    engine: pronk.InferenceEngine, expected: list[GreedyRun]
) -> None:
    completions = generate(engine, expected, **exact_settings(layout="batched"))
    equal = [
        check(done, run, BATCHED_TOLERANCE) for done, run in zip(completions, expected, strict=True)
    ]
    print(equal)
    assert sum(equal) > 0.5 * sum(len(run.tokens) for run in expected)


def test_default_settings_are_equal_up_to_a_near_tie(
    engine: pronk.InferenceEngine, expected: list[GreedyRun]
) -> None:
    short = [run for run in expected if len(run.prompt_tokens) < 50]
    completions = generate(engine, short)
    equal = [
        check(done, run, DEFAULT_TOLERANCE) for done, run in zip(completions, short, strict=True)
    ]
    print(equal)
    assert sum(equal) > 0.25 * sum(len(run.tokens) for run in short)
