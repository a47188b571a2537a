"""The parts of the demo that need no model: conversations, the gauge, the checks of the summary."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

import pronk
from pronk._cli.demo_agent import Conversation, State, Tally
from pronk._cli.demo_gauge import Gauge
from pronk._cli.demo_report import Report


class WordTokenizer:
    """Counts a token per word."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def tokenize(self, text: str, *, parse_special: bool = False) -> list[int]:
        assert parse_special
        self.texts.append(text)
        return list(range(len(text.split())))


def prompt(conversation: Conversation, room: int) -> tuple[list[int], str]:
    tokenizer = WordTokenizer()
    engine = cast("pronk.InferenceEngine", tokenizer)
    return conversation.prompt(engine, "and now?", room), tokenizer.texts[-1]


def test_a_conversation_keeps_its_history() -> None:
    conversation = Conversation("bread")
    conversation.add("first question", "first answer")

    _, text = prompt(conversation, 1000)

    turns = [turn.split("\n", 1)[0] for turn in text.split("<|im_start|>")[1:]]
    assert turns == ["system", "user", "assistant", "user", "assistant"]
    assert text.index("first question") < text.index("first answer") < text.index("and now?")
    assert text.endswith("<|im_start|>assistant\n")


def test_a_conversation_forgets_the_oldest_first() -> None:
    conversation = Conversation("bread")
    for number in range(5):
        conversation.add(f"question {number}", f"answer {number}")
    whole, _ = prompt(conversation, 1000)

    tokens, text = prompt(conversation, len(whole) - 1)

    assert len(tokens) < len(whole)
    assert "answer 0" not in text
    assert "answer 1" in text
    assert "answer 4" in text


def test_a_conversation_without_room_still_asks() -> None:
    tokens, text = prompt(Conversation("bread"), 1)

    assert len(tokens) > 1
    assert "and now?" in text


def test_the_questions_go_round() -> None:
    conversation = Conversation("bread")

    assert "bread" in conversation.question(1)
    assert conversation.question(1) != conversation.question(2)
    assert conversation.question(1) == conversation.question(5)


def test_the_gauge_remembers_its_peak() -> None:
    gauge, inside = Gauge(), threading.Barrier(4, timeout=60)

    def enter() -> None:
        with gauge:
            inside.wait()

    threads = [threading.Thread(target=enter) for _ in range(3)]
    for thread in threads:
        thread.start()
    inside.wait()
    for thread in threads:
        thread.join(60)
    with gauge:
        pass

    assert gauge.peak == 3


@dataclass
class Case:
    tallies: list[Tally]
    statistics: SimpleNamespace
    peak: int = 2

    def report(self) -> Report:
        statistics = cast("pronk.Statistics", self.statistics)
        return Report(self.tallies, statistics, turns=3, peak=self.peak, wall_seconds=2.0)


@pytest.fixture
def sound_case() -> Case:
    def tally(number: int) -> Tally:
        return Tally(
            f"agent {number}",
            "bread",
            state=State.DONE,
            turns_finished=3,
            prompt_tokens=100 * number,
            cached_tokens=10 * number,
            completion_tokens=number,
        )

    return Case(
        [tally(number) for number in (1, 2, 3)],
        SimpleNamespace(
            layout="isolated",
            n_ctx=1024,
            max_concurrent=2,
            high_water=2,
            acquired=9,
            released=9,
            active=0,
            waiting=0,
            completed=9,
            wait_seconds=1.0,
            prompt_tokens=600,
            reused_tokens=60,
            completion_tokens=6,
        ),
    )


def test_figures_that_add_up_are_sound(sound_case: Case) -> None:
    report = sound_case.report()

    assert report.sound
    assert report.as_dict()["totals"]["tokens_per_second"] == 3.0


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("high_water", 3),
        ("high_water", 1),
        ("acquired", 8),
        ("released", 8),
        ("active", 1),
        ("waiting", 1),
        ("completed", 8),
        ("prompt_tokens", 601),
        ("reused_tokens", 59),
        ("completion_tokens", 7),
    ],
)
def test_every_figure_that_is_off_is_noticed(sound_case: Case, field: str, wrong: Any) -> None:
    setattr(sound_case.statistics, field, wrong)

    assert not sound_case.report().sound


@pytest.mark.parametrize("state", [State.FAILED, State.STOPPED, State.TOOL])
def test_an_agent_that_did_not_finish_is_noticed(sound_case: Case, state: State) -> None:
    sound_case.tallies[1].state = state

    assert not sound_case.report().sound
