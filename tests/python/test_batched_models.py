"""The same answer: what pronk says on real memories is what llama.cpp says to the prompt alone."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from agreement import (
    ALL,
    DEFAULT,
    EXACT,
    Answer,
    check_answers,
    distance,
    fresh_random,
    random_tokens,
    tolerance,
)
from conftest import wait_until
from fixtures_models import Tiny
from reference_program import ReferenceProgram
from tiny_models import MEMORY_KINDS, Kind

import pronk

ARRANGEMENTS: dict[str, dict[str, Any]] = {
    "isolated": {"layout": "isolated"},
    "shared": {"layout": "batched", "kv": "shared"},
    "split": {"layout": "batched", "kv": "split"},
}
# One compute thread: with tiny models and busy cores, more spend their time waiting for each other.
ONE_THREAD: dict[str, Any] = {"n_threads": 1}
SECONDS = 60.0  # a guard against hangs
MAX_TOKENS = 16

each_kind = pytest.mark.parametrize("kind", MEMORY_KINDS)
each_setting = pytest.mark.parametrize("settings", [EXACT, DEFAULT], ids=["exact", "default"])


def start(
    scheduler: pronk.InferenceScheduler,
    prompt: list[int],
    max_tokens: int = MAX_TOKENS,
    **params: Any,
) -> pronk.Generation:
    return scheduler.generate(prompt, max_tokens=max_tokens, temperature=0, logprobs=3, **params)


# --- everything at once --------------------------------------------------------------------------


@dataclass
class Conversation:
    prompt: list[int]
    turns: int  # left
    params: dict[str, Any]
    max_tokens: int = 0  # of the turn that runs
    running: pronk.Generation | None = None


@dataclass
class Crowd:
    """Conversations that come and go at random over one scheduler."""

    source: random.Random
    scheduler: pronk.InferenceScheduler
    conversations: list[Conversation]
    answers: list[Answer] = field(default_factory=list)

    def play(self) -> list[Answer]:
        while waiting := [c for c in self.conversations if c.running or c.turns]:
            conversation = self.source.choice(waiting)
            if conversation.running is None:
                conversation.turns -= 1
                conversation.max_tokens = self.source.randrange(1, 25)
                conversation.running = start(
                    self.scheduler,
                    conversation.prompt,
                    conversation.max_tokens,
                    **conversation.params,
                )
                continue
            roll = self.source.random()
            if roll < 0.1:
                conversation.running.cancel()
            elif roll < 0.5:
                # Time passes: until it says something more.
                with contextlib.suppress(pronk.GenerationCancelled):
                    next(conversation.running, None)
            else:
                self.settle(conversation, conversation.running)
        return self.answers

    def settle(self, conversation: Conversation, generation: pronk.Generation) -> None:
        done = generation.result(SECONDS)
        self.answers.append(Answer(conversation.prompt, conversation.max_tokens, done))
        conversation.running = None
        said = conversation.prompt + done.tokens
        if self.source.random() < 0.2:  # an earlier message was edited
            said = said[: self.source.randrange(1, len(said))]
        conversation.prompt = said + random_tokens(self.source, self.source.randrange(1, 20))


def crowd(source: random.Random, scheduler: pronk.InferenceScheduler, conversations: int) -> Crowd:
    system = random_tokens(source, 150)
    stems = [system[:length] for length in (0, 10, 60, 150)]
    return Crowd(
        source,
        scheduler,
        [
            Conversation(
                prompt=source.choice(stems) + random_tokens(source, source.randrange(1, 60)),
                turns=source.randrange(1, 4),
                params={
                    "cache": source.random() > 0.1,
                    "cache_scope": source.choice(["", "", "", "tenant"]),
                },
            )
            for _ in range(conversations)
        ],
    )


@each_kind
@each_setting
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_interleaved_answers_are_the_ones_given_alone(
    kind: Kind,
    arrangement: str,
    settings: dict[str, Any],
    tiny: Tiny,
    reference: ReferenceProgram,
) -> None:
    source = fresh_random()
    options: dict[str, Any] = {
        **ARRANGEMENTS[arrangement],
        **settings,
        **ONE_THREAD,
        "n_ctx": 512,
        "n_batch": source.choice([16, 48, 256]),
        "n_cached": source.randrange(6),  # with the lanes fewer than conversations
    }
    lanes = source.randrange(3, 9)
    print(lanes, options)
    engine = pronk.InferenceEngine.load(tiny(kind))
    with pronk.InferenceScheduler(lanes, engine=engine, **options) as scheduler:
        answers = crowd(source, scheduler, 16).play()
        reused = sum(answer.done.usage.cached_tokens for answer in answers)
        # Counted once a step is over, a moment after the last answer.
        wait_until(lambda: scheduler.statistics().reused_tokens == reused)
    worst = check_answers(
        reference,
        tiny(kind),
        answers,
        settings=settings,
        allowed=tolerance(kind, settings),
    )
    print(f"log probabilities are off by {worst:.1e} at most")


# --- what the tolerances mean --------------------------------------------------------------------


@each_kind
@each_setting
def test_reuse_only_rounds(
    kind: Kind, settings: dict[str, Any], tiny: Tiny, reference: ReferenceProgram
) -> None:
    """A prompt from its beginning, and from a reused prefix of it."""
    source = fresh_random()
    engine = pronk.InferenceEngine.load(tiny(kind))
    options: dict[str, Any] = {**settings, **ONE_THREAD, "n_ctx": 1024, "kv": "shared"}
    answers = []
    with pronk.InferenceScheduler(1, engine=engine, **options) as scheduler:
        for length in (30, 100, 300):
            prefix = random_tokens(source, length)
            assert start(scheduler, prefix, max_tokens=0).result(SECONDS).tokens == []
            prompt = prefix + random_tokens(source, 7)
            for cache, reused in ((True, length), (False, 0)):
                done = start(scheduler, prompt, cache=cache).result(SECONDS)
                assert done.usage.cached_tokens == reused
                answers.append(Answer(prompt, MAX_TOKENS, done))
    check_answers(
        reference, tiny(kind), answers, settings=settings, allowed=tolerance(kind, settings)
    )


@each_kind
@each_setting
def test_tolerances_are_needed_by_llama_cpp_itself(
    kind: Kind, settings: dict[str, Any], tiny: Tiny, reference: ReferenceProgram
) -> None:
    """The same prompts in pieces of other sizes: nothing of pronk is in this."""
    source = fresh_random()
    prompts = [random_tokens(source, source.randrange(20, 200)) for _ in range(10)]
    whole, *others = (
        reference.greedy(
            tiny(kind), prompts, n_predict=16, exact=settings == EXACT, top=ALL, n_ubatch=n_ubatch
        )
        for n_ubatch in (512, 48, 7, 1)
    )
    worst = max(distance(a, b) for other in others for a, b in zip(whole, other, strict=True))
    print(f"log probabilities differ by {worst:.1e} at most")
    assert worst <= tolerance(kind, settings)
    if settings == DEFAULT and kind != "recurrent":
        assert worst > tolerance("plain", EXACT), "then float16 would not be what rounds"
