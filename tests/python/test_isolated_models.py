"""Layout "isolated": an answer has the same bits whatever else the scheduler does."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from agreement import fresh_random, random_tokens
from fixtures_models import Tiny
from tiny_models import MEMORY_KINDS, Kind

import pronk

LANES = 4
CHUNK = 32
SECONDS = 60.0  # a guard against hangs

Bits = list[tuple[int, float, list[tuple[int, float]]]]


def isolated(engine: pronk.InferenceEngine, **options: Any) -> pronk.InferenceScheduler:
    options = {"n_ctx": 512, "n_batch": CHUNK, "n_threads": 1, **options}
    return pronk.InferenceScheduler(LANES, engine=engine, layout="isolated", **options)


def bits(generation: pronk.Generation) -> Bits:
    """Tokens and log probabilities, which are compared as they are."""
    done = generation.result(SECONDS)
    return [(entry.token, entry.logprob, entry.top) for entry in done.logprobs or []]


def answer(scheduler: pronk.InferenceScheduler, prompt: list[int], max_tokens: int = 24) -> Bits:
    return bits(scheduler.generate(prompt, max_tokens=max_tokens, temperature=0, logprobs=5))


class Neighbours:
    """Keeps all lanes but one busy with prompts that begin like those under test."""

    def __init__(self, source: random.Random, scheduler: pronk.InferenceScheduler) -> None:
        self._source = source
        self._scheduler = scheduler
        self._running: list[pronk.Generation] = []

    def stir(self, prompt: list[int]) -> None:
        """Replace those that have ended; cancel one of them now and then."""
        self._running = [generation for generation in self._running if not generation.done]
        if self._running and self._source.random() < 0.3:
            self._source.choice(self._running).cancel()
        while len(self._running) < LANES - 1:
            begin = prompt[: self._source.randrange(len(prompt))]
            rest = random_tokens(self._source, self._source.randrange(1, 150))
            self._running.append(
                self._scheduler.generate(
                    begin + rest, max_tokens=self._source.randrange(1, 40), temperature=1.0
                )
            )

    def stop(self) -> None:
        for generation in self._running:
            generation.cancel()
            generation.result(SECONDS)


@contextmanager
def noisy(source: random.Random, scheduler: pronk.InferenceScheduler) -> Iterator[Neighbours]:
    neighbours = Neighbours(source, scheduler)
    yield neighbours
    neighbours.stop()


def prompts(source: random.Random) -> list[list[int]]:
    """Of less than a chunk, of several, of whole ones; some begin alike."""
    long = random_tokens(source, 5 * CHUNK + 11)
    return [
        random_tokens(source, 1),
        random_tokens(source, CHUNK - 1),
        long[: 2 * CHUNK],
        long[: 2 * CHUNK + 1],
        long,
        long[: 3 * CHUNK] + random_tokens(source, CHUNK),
    ]


@pytest.mark.parametrize("kind", MEMORY_KINDS)
@pytest.mark.parametrize("cache", [True, False], ids=["reuse", "no reuse"])
def test_neighbours_leave_no_trace(kind: Kind, cache: bool, tiny: Tiny) -> None:
    source = fresh_random()
    engine = pronk.InferenceEngine.load(tiny(kind))
    asked = prompts(source)
    alone = []
    for prompt in asked:
        with isolated(engine) as scheduler:  # in a context that nobody has used
            alone.append(answer(scheduler, prompt))
    assert len({entry[1] for entries in alone for entry in entries}) > 100, "all answers alike"

    with isolated(engine) as scheduler, noisy(source, scheduler) as neighbours:
        for _ in range(4):
            for index in source.sample(range(len(asked)), len(asked)):
                neighbours.stir(asked[index])
                generation = scheduler.generate(
                    asked[index], max_tokens=24, temperature=0, logprobs=5, cache=cache
                )
                assert bits(generation) == alone[index], f"prompt {index}"
        statistics = scheduler.statistics()
    if cache and kind in ("plain", "swa"):
        assert statistics.reused_tokens > 0
        assert statistics.reused_tokens % CHUNK == 0, "only whole chunks have the same bits"


@pytest.mark.parametrize("kind", MEMORY_KINDS)
def test_next_turns_have_the_bits_of_a_fresh_context(kind: Kind, tiny: Tiny) -> None:
    """What was generated was evaluated token by token: it must not count as a prompt's chunk."""
    source = fresh_random()
    engine = pronk.InferenceEngine.load(tiny(kind))
    with isolated(engine) as scheduler, noisy(source, scheduler) as neighbours:
        conversation = random_tokens(source, 40)
        for _ in range(5):
            neighbours.stir(conversation)
            said = answer(scheduler, conversation)
            with isolated(engine) as fresh:
                assert said == answer(fresh, conversation)
            conversation = conversation + [entry[0] for entry in said] + random_tokens(source, 9)


def test_a_cancelled_prompt_leaves_no_trace(tiny_any: Any) -> None:
    source = fresh_random()
    engine = pronk.InferenceEngine.load(tiny_any)
    long = random_tokens(source, 450)
    with isolated(engine) as scheduler:
        expected = answer(scheduler, long)
    with isolated(engine) as scheduler:
        for _ in range(10):
            generation = scheduler.generate(long, max_tokens=1)
            seen = scheduler.statistics().evaluated_tokens
            for _ in range(source.randrange(2000)):
                if scheduler.statistics().evaluated_tokens > seen:
                    break
            generation.cancel()
            generation.result(SECONDS)
            assert answer(scheduler, long) == expected


def test_several_threads(tiny_plain: Any) -> None:
    """How work is split over compute threads is part of the arithmetic, and fixed."""
    source = fresh_random()
    engine = pronk.InferenceEngine.load(tiny_plain)
    prompt = random_tokens(source, 70)
    with isolated(engine, n_threads=2) as scheduler:
        alone = answer(scheduler, prompt, 6)
    with isolated(engine, n_threads=2) as scheduler, noisy(source, scheduler) as neighbours:
        for _ in range(3):
            neighbours.stir(prompt)
            assert answer(scheduler, prompt, 6) == alone
