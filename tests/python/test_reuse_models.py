"""What is evaluated, and what is reused, on real memories of every type."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

import pytest
from agreement import EXACT, Answer, check_answers, fresh_random, random_tokens, tolerance
from conftest import wait_until
from fixtures_models import Tiny
from reference_program import ReferenceProgram
from tiny_models import MEMORY_KINDS, SLIDING_WINDOW, Kind

import pronk

SYSTEM = 600  # tokens of the system prompt that all agents have in common
SECONDS = 60.0  # a guard against hangs
MAX_TOKENS = 12
# What a state remembers cannot be taken back: these have a prefix only where a sequence ends.
STATES: tuple[Kind, ...] = ("recurrent", "hybrid", "rollback")

each_kind = pytest.mark.parametrize("kind", MEMORY_KINDS)
each_kv = pytest.mark.parametrize("kv", ["shared", "split"])


def open_pool(path: Any, lanes: int, kv: str, **options: Any) -> pronk.InferenceScheduler:
    engine = pronk.InferenceEngine.load(path)
    options = {"n_ctx": 1024, "n_threads": 1, **EXACT, **options}
    return pronk.InferenceScheduler(lanes, engine=engine, layout="batched", kv=kv, **options)


def start(
    scheduler: pronk.InferenceScheduler, prompt: list[int], max_tokens: int = MAX_TOKENS
) -> pronk.Generation:
    return scheduler.generate(prompt, max_tokens=max_tokens, temperature=0, logprobs=2)


def ask(
    scheduler: pronk.InferenceScheduler, prompt: list[int], max_tokens: int = MAX_TOKENS
) -> Answer:
    return Answer(prompt, max_tokens, start(scheduler, prompt, max_tokens).result(SECONDS))


def evaluated(answer: Answer) -> int:
    """Tokens that had to go through the model. The last one sampled is not evaluated any more."""
    usage = answer.done.usage
    return usage.prompt_tokens - usage.cached_tokens + max(0, usage.completion_tokens - 1)


def held_after(answer: Answer) -> int:
    """Tokens that a sequence holds when its generation is over."""
    return len(answer.prompt) + len(answer.done.tokens) - 1


def check_statistics(scheduler: pronk.InferenceScheduler, answers: Sequence[Answer]) -> None:
    """The counters tell what the answers tell."""
    # Counted once a step is over, a moment after the last answer.
    wait_until(lambda: scheduler.statistics().running == 0)
    statistics = scheduler.statistics()
    assert statistics.prompt_tokens == sum(len(answer.prompt) for answer in answers)
    assert statistics.reused_tokens == sum(answer.done.usage.cached_tokens for answer in answers)
    assert statistics.prefix_hits == sum(answer.done.usage.cached_tokens > 0 for answer in answers)
    assert statistics.evaluated_tokens == sum(evaluated(answer) for answer in answers)


def check(reference: ReferenceProgram, kind: Kind, tiny: Tiny, answers: Sequence[Answer]) -> None:
    """Reused or not, they are the answers of llama.cpp."""
    check_answers(reference, tiny(kind), answers, settings=EXACT, allowed=tolerance(kind, EXACT))


def own_prompt(source: random.Random, system: list[int], agent: int) -> list[int]:
    """The common part, and no token more, then the agent's own."""
    return [*system, 0x41 + agent, *random_tokens(source, source.randrange(5, 30))]


def next_turn(source: random.Random, answer: Answer) -> list[int]:
    return answer.prompt + answer.done.tokens + random_tokens(source, source.randrange(5, 20))


@each_kind
@each_kv
def test_agents_that_start_together_share_their_system_prompt(
    kind: Kind, kv: str, tiny: Tiny, reference: ReferenceProgram
) -> None:
    """The common part is evaluated once. When the first of them is past its end before the loop has
    seen the others, a state has to be made there a second time, which then stays: the C++ tests
    have them arrive in one step."""
    source = fresh_random()
    system = random_tokens(source, SYSTEM)
    with open_pool(tiny(kind), 4, kv, n_ctx=4096, n_batch=4096) as scheduler:
        prompts = [own_prompt(source, system, agent) for agent in range(4)]
        running = [start(scheduler, prompt) for prompt in prompts]
        agents = [
            Answer(prompt, MAX_TOKENS, generation.result(SECONDS))
            for prompt, generation in zip(prompts, running, strict=True)
        ]
        refused = scheduler.statistics().reuse_refused
        assert refused <= (1 if kind in STATES else 0)
        cached = [agent.done.usage.cached_tokens for agent in agents]
        assert cached == [0] * (1 + refused) + [SYSTEM] * (3 - refused)
        answers = list(agents)

        for _ in range(3):
            turns = [next_turn(source, agent) for agent in agents]
            running = [start(scheduler, turn) for turn in turns]
            held = [held_after(agent) for agent in agents]
            agents = [
                Answer(turn, MAX_TOKENS, generation.result(SECONDS))
                for turn, generation in zip(turns, running, strict=True)
            ]
            assert [agent.done.usage.cached_tokens for agent in agents] == held
            answers += agents
        check_statistics(scheduler, answers)
        assert scheduler.statistics().reuse_refused == refused
    check(reference, kind, tiny, answers)


@each_kind
@each_kv
def test_more_conversations_than_lanes(
    kind: Kind, kv: str, tiny: Tiny, reference: ReferenceProgram
) -> None:
    """Each goes on where it was, as long as there are sequences to keep it in."""
    source = fresh_random()
    system = random_tokens(source, SYSTEM)
    with open_pool(tiny(kind), 2, kv, n_ctx=4096, n_cached=6) as scheduler:
        agents = [ask(scheduler, own_prompt(source, system, agent)) for agent in range(5)]
        answers = list(agents)
        cached = [agent.done.usage.cached_tokens for agent in agents]
        if kind in STATES:
            # The system prompt's end is inside the first conversation, where no state is left.
            # The second one leaves one there.
            assert cached == [0] * 2 + [SYSTEM] * 3
            assert scheduler.statistics().reuse_refused == 1
            assert "recurrent state" in scheduler.statistics().reuse_refused_reason
        else:
            assert cached == [0] + [SYSTEM] * 4
        for _ in range(3):
            for index, agent in enumerate(agents):
                agents[index] = ask(scheduler, next_turn(source, agent))
                assert agents[index].done.usage.cached_tokens == held_after(agent)
                answers.append(agents[index])
        check_statistics(scheduler, answers)
        assert scheduler.statistics().reuse_refused == (1 if kind in STATES else 0)
    check(reference, kind, tiny, answers)


@each_kind
@each_kv
def test_an_earlier_message_is_edited(
    kind: Kind, kv: str, tiny: Tiny, reference: ReferenceProgram
) -> None:
    """Turns that go back: far past the window of a sliding one, and where no state is left."""
    source = fresh_random()
    # In shared cells, those behind the window of a sequence may go to others at any time.
    may_be_taken = kind == "swa" and kv == "shared"
    with open_pool(tiny(kind), 2, kv, n_cached=0) as scheduler:
        answers = [ask(scheduler, random_tokens(source, 12 * SLIDING_WINDOW))]
        short = 0
        for _ in range(8):
            last = answers[-1]
            cut = source.randrange(1, len(last.prompt))
            # Another token than there was: the common prefix ends exactly here.
            edited = [*last.prompt[:cut], 256 - last.prompt[cut]]
            answers.append(ask(scheduler, edited + random_tokens(source, 5 * SLIDING_WINDOW)))
            cached = answers[-1].done.usage.cached_tokens
            if kind in STATES:
                assert cached <= cut  # where an earlier edit left a checkpoint
            elif not may_be_taken:
                assert cached >= cut  # an older conversation may have more of it
            short += cached < cut
        check_statistics(scheduler, answers)
        # Where a long prefix is refused, another sequence may still have one that is long enough.
        refused = scheduler.statistics().reuse_refused
        assert refused >= short if may_be_taken else refused == short
    check(reference, kind, tiny, answers)


@each_kind
@each_kv
def test_the_same_prompt_again(
    kind: Kind, kv: str, tiny: Tiny, reference: ReferenceProgram
) -> None:
    """All but its last token is known. A state exists where a sequence ends: the second leaves a
    checkpoint there."""
    source = fresh_random()
    prompt = random_tokens(source, 100)
    with open_pool(tiny(kind), 2, kv) as scheduler:
        answers = [ask(scheduler, prompt) for _ in range(4)]
        known = len(prompt) - 1
        expected = [0, 0, known, known] if kind in STATES else [0, known, known, known]
        assert [answer.done.usage.cached_tokens for answer in answers] == expected
        check_statistics(scheduler, answers)
    check(reference, kind, tiny, answers)


@each_kind
@pytest.mark.parametrize("kv", ["shared", "split", "isolated"])
@pytest.mark.parametrize("neighbour", [False, True], ids=["alone", "beside another"])
def test_a_prompt_cancelled_half_way(
    kind: Kind, kv: str, neighbour: bool, tiny: Tiny, reference: ReferenceProgram
) -> None:
    """What was evaluated until then is either reused, and right, or gone."""
    source = fresh_random()
    long = random_tokens(source, 900)
    engine = pronk.InferenceEngine.load(tiny(kind))
    layout = {"layout": kv} if kv == "isolated" else {"layout": "batched", "kv": kv}
    options: dict[str, Any] = {**layout, **EXACT, "n_ctx": 1024, "n_batch": 64, "n_threads": 1}
    answers = []
    with pronk.InferenceScheduler(2, engine=engine, **options) as scheduler:
        for _ in range(4):
            other_prompt = random_tokens(source, 20)
            other = start(scheduler, other_prompt, 40) if neighbour else None
            before = scheduler.statistics().evaluated_tokens
            cancelled = start(scheduler, long)
            goal = before + source.randrange(800)
            while scheduler.statistics().evaluated_tokens <= goal and not cancelled.done:
                time.sleep(0)
            cancelled.cancel()
            answers.append(Answer(long, MAX_TOKENS, cancelled.result(SECONDS)))
            shares = long[: source.randrange(1, len(long))] + random_tokens(source, 10)
            answers.append(ask(scheduler, shares))
            if other:
                answers.append(Answer(other_prompt, 40, other.result(SECONDS)))
            long = random_tokens(source, 900)
        wait_until(lambda: scheduler.statistics().running == 0)
        assert scheduler.statistics().failed == 0
    check(reference, kind, tiny, answers)
