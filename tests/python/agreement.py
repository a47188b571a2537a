"""Whether an answer of pronk is the one that llama.cpp gives, judged by llama.cpp's own logits.

How many tokens go through the model at once shows in the last bits of what it computes. Two answers
agree when every log probability of theirs differs by less than a tolerance, and when the first
token that differs, if any, had a rival just as likely: by no more than two log probabilities off by
the tolerance can explain. What follows such a near-tie is another text, and is not compared.
"""

from __future__ import annotations

import math
import os
import random
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reference_program import GreedyRun, ReferenceProgram
from tiny_models import Kind

import pronk

# Nothing here rounds to less than float32, so that rounding stays small.
EXACT: dict[str, Any] = {"flash_attention": "off", "type_k": "f32", "type_v": "f32"}
DEFAULT: dict[str, Any] = {}

ALL = 1 << 20  # logits of a step: every one of any vocabulary

# Of log probabilities, each some five times the worst of hundreds of runs. A prefix with one wrong
# token is off by 0.1 and more, which `EXACT` tells from rounding for certain. The sharp attention
# of the windowed model makes much of little: llama.cpp itself differs by 3e-3 in a step when it is
# given the tokens of its answer as a prompt.
_EXACT_TOLERANCE: dict[Kind, float] = {"swa": 2e-2}
_DEFAULT_TOLERANCE: dict[Kind, float] = {"recurrent": 1e-4}  # it has no KV cache to round


def tolerance(kind: Kind, settings: dict[str, Any]) -> float:
    """The largest difference of a log probability that counts as rounding."""
    if settings == EXACT:
        return _EXACT_TOLERANCE.get(kind, 1e-4)
    return _DEFAULT_TOLERANCE.get(kind, 0.15)


@dataclass(frozen=True)
class Answer:
    """What pronk said to a prompt, with log probabilities."""

    prompt: list[int]
    max_tokens: int
    done: pronk.Completion

    def is_whole(self) -> bool:
        """Whether it is as long as asked for: these models do not end a text by themselves."""
        return self.done.finish_reason == "length" and len(self.done.tokens) == self.max_tokens


def fresh_random() -> random.Random:
    """A generator of random numbers whose seed no run had before; a failure shows it.

    PRONK_TEST_SEED in the environment repeats one.
    """
    seed = int(os.environ.get("PRONK_TEST_SEED") or secrets.randbits(32))
    print(f"repeat with PRONK_TEST_SEED={seed}")
    return random.Random(seed)


def random_tokens(source: random.Random, count: int) -> list[int]:
    return source.choices(range(0x20, 0x7F), k=count)


def log_probabilities(logits: Sequence[tuple[int, float]]) -> dict[int, float]:
    """The log-softmax of a whole row of logits."""
    highest = max(logit for _, logit in logits)
    total = math.log(math.fsum(math.exp(logit - highest) for _, logit in logits))
    return {token: logit - highest - total for token, logit in logits}


def deviation(done: pronk.Completion, run: GreedyRun, allowed: float) -> float:
    """The largest difference of a log probability. Fails where the two do not agree."""
    worst = 0.0
    entries = done.logprobs or []
    assert [entry.token for entry in entries] == done.tokens
    assert len(done.tokens) <= len(run.tokens)
    for step, entry in enumerate(entries):
        expected = log_probabilities(run.top[step])
        for token, logprob in [(entry.token, entry.logprob), *entry.top]:
            worst = max(worst, abs(logprob - expected[token]))
        assert worst <= allowed, f"step {step}: a log probability is off by {worst}"
        if entry.token != run.tokens[step]:
            gap = expected[run.tokens[step]] - expected[entry.token]
            assert gap <= 2 * allowed, f"step {step}: another token, which is {gap} less likely"
            return worst
    return worst


def distance(one: GreedyRun, other: GreedyRun) -> float:
    """The largest difference of a log probability of likely tokens, up to the first other token."""
    worst = 0.0
    for step, token in enumerate(one.tokens):
        expected = log_probabilities(one.top[step])
        got = log_probabilities(other.top[step])
        worst = max(
            worst, *(abs(got[likely] - expected[likely]) for likely, _ in one.top[step][:4])
        )
        if token != other.tokens[step]:
            break
    return worst


def check_answers(
    reference: ReferenceProgram,
    model: Path,
    answers: Sequence[Answer],
    *,
    settings: dict[str, Any],
    allowed: float,
) -> float:
    """Compare all answers with llama.cpp's; returns the largest difference of a log probability."""
    for answer in answers:
        assert answer.is_whole() or answer.done.finish_reason == "cancelled"
    runs = reference.greedy(
        model,
        [answer.prompt for answer in answers],
        n_predict=max(1, *(len(answer.done.tokens) for answer in answers)),
        exact=settings == EXACT,
        top=ALL,
    )
    return max(
        deviation(answer.done, run, allowed) for answer, run in zip(answers, runs, strict=True)
    )
