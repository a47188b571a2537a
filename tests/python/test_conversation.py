"""Conversations: always whole, plain JSON, and cut only where that is safe."""

from __future__ import annotations

import json
import random
import threading
from typing import Any

import pytest

import pronk
from pronk._compaction import choose, is_summary, split_system, summarised

Message = dict[str, Any]


def user(text: str = "?") -> Message:
    return {"role": "user", "content": text}


def said(text: str = "!") -> Message:
    return {"role": "assistant", "content": text}


def calls(*ids: str) -> list[Message]:
    made = [
        {"id": each, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for each in ids
    ]
    message = {"role": "assistant", "content": "", "tool_calls": made}
    return [message, *({"role": "tool", "tool_call_id": each, "content": each} for each in ids)]


SYSTEM = {"role": "system", "content": "Be brief."}
WHOLE = [SYSTEM, user(), *calls("a", "b"), *calls("c"), said(), user(), said()]


def test_saved_restored_forked() -> None:
    conversation = pronk.Conversation(WHOLE)
    text = conversation.to_json()
    assert json.loads(text) == WHOLE
    assert pronk.Conversation.from_json(text).messages == WHOLE
    assert pronk.Conversation.from_json(text.encode()).messages == WHOLE
    fork = conversation.fork()
    fork.extend([user("only here")])
    conversation.extend([user("only there")])
    assert fork.messages == [*WHOLE, user("only here")]
    assert conversation.messages == [*WHOLE, user("only there")]
    assert len(conversation) == len(WHOLE) + 1


ITSELF: list[Any] = []
ITSELF.append(ITSELF)


@pytest.mark.parametrize(
    "messages",
    [
        None,
        3,
        "text",
        b"text",
        {},
        {"role": "user", "content": "?"},
        [None],
        ["text"],
        [{}],
        [{"role": 3}],
        [{"role": "user", "content": object()}],
        [{"role": "user", "content": threading.Lock()}],
        [{"role": "user", "content": float("nan")}],
        [{"role": "user", "content": 10**5000}],
        [{"role": "user", "content": ITSELF}],
        [{"role": "user", b"content": "?"}],
        [{"role": "assistant", "tool_calls": 5}],
        [{"role": "assistant", "tool_calls": [5]}],
        [{"role": "assistant", "tool_calls": {"id": "a"}}],
    ],
)
def test_what_is_no_conversation(messages: Any) -> None:
    conversation = pronk.Conversation([user()])
    wrong = (pronk.InvalidArgumentError, pronk.InvalidTypeError)
    with pytest.raises(wrong, match=r": got .*expected"):
        pronk.Conversation(messages)
    with pytest.raises(wrong, match=r": got .*expected"):
        conversation.extend(messages)
    with pytest.raises(wrong, match=r": got .*expected"):
        conversation.replace(messages)
    assert conversation.messages == [user()]


@pytest.mark.parametrize(
    "text", [None, 3, [], b"\xff", "{", "{}", "3", "[3]", '[{"role": "user", "content": NaN}]']
)
def test_what_is_no_saved_conversation(text: Any) -> None:
    with pytest.raises((pronk.InvalidArgumentError, pronk.InvalidTypeError), match=r"got .*expect"):
        pronk.Conversation.from_json(text)


def test_messages_become_plain_json() -> None:
    conversation = pronk.Conversation([{"role": "user", "content": ({"type": "text"},), "n": 0.1}])
    assert conversation.messages == [{"role": "user", "content": [{"type": "text"}], "n": 0.1}]
    assert pronk.Conversation.from_json(conversation.to_json()).messages == conversation.messages


def test_nobody_changes_it_from_outside() -> None:
    given = [user("a")]
    conversation = pronk.Conversation(given)
    given[0]["content"] = "b"
    conversation.messages[0]["content"] = "c"
    conversation.messages.clear()
    assert conversation.messages == [user("a")]


@pytest.mark.parametrize(
    "messages",
    [
        calls("a")[:1],
        calls("a", "b")[:2],
        calls("a")[1:],
        [*calls("a"), *calls("a")[1:]],
        [calls("a")[0], user(), calls("a")[1]],
        [calls("a")[0], calls("b")[1]],
        [{"role": "assistant", "tool_calls": [{}]}],
        [{"role": "assistant", "tool_calls": ["a"]}],
        [{"role": "nobody", "content": ""}],
        [{}],
        ["text"],
        [None],
    ],
)
def test_what_is_not_whole_is_refused(messages: list[Any]) -> None:
    with pytest.raises((pronk.InvalidArgumentError, pronk.InvalidTypeError), match=": got "):
        pronk.Conversation(messages)
    conversation = pronk.Conversation(WHOLE)
    for change in (conversation.extend, conversation.replace):
        with pytest.raises(pronk.Error):
            change([user(), *messages])
        assert conversation.messages == WHOLE


@pytest.mark.parametrize("text", ["", "{", "{}", "5", "null", '"x"', "[" * 100_000, b"\xff"])
def test_text_that_is_no_conversation(text: str | bytes) -> None:
    with pytest.raises((pronk.InvalidArgumentError, pronk.InvalidTypeError), match=": got "):
        pronk.Conversation.from_json(text)


def test_compaction_of_random_histories() -> None:
    """Whatever is cut, what is left is whole, a suffix but for the question, and small enough."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(300):
        messages: list[Message] = []
        number = 0
        for _ in range(rng.randint(1, 8)):
            messages += [user(f"q{number}") for _ in range(rng.choice([1, 1, 1, 2]))]
            for _ in range(rng.randint(0, 4)):
                ids = [f"{number}.{n}" for n in range(rng.randint(1, 3))]
                number += 1
                messages += calls(*ids)
            messages.append(said(f"a{number}"))
            number += 1
        costs = {id(message): rng.randint(1, 30) for message in messages}

        def count(message: Message, costs: dict[int, int] = costs) -> int:
            return costs[id(message)]

        total = sum(costs.values())
        target = rng.randint(0, total + 10)
        answered = rng.random() < 0.5
        kept, dropped = choose(messages, target, count, answered=answered)
        assert sorted(map(id, kept + dropped)) == sorted(map(id, messages))
        pronk.Conversation(kept)
        pronk.Conversation(dropped)
        if total <= target:
            assert not dropped
        if kept:
            assert kept[0]["role"] == "user"
            assert kept[-1] is messages[-1]
        left = sum(map(count, kept))
        if answered and total > target:
            assert left <= target
        elif left > target:
            # Only the last question and what came last are left.
            assert sum(message["role"] == "user" for message in kept) <= 2
            assert sum(message["role"] == "assistant" for message in kept) == 1


def test_the_latest_that_fits_is_kept() -> None:
    messages = [user("1"), said(), user("2"), said(), user("3"), said()]
    kept, dropped = choose(messages, 40, lambda _: 10, answered=True)
    assert (kept, dropped) == (messages[2:], messages[:2])
    kept, dropped = choose(messages, 39, lambda _: 10, answered=True)
    assert kept == messages[4:]
    assert choose(messages, 5, lambda _: 10, answered=True) == ([], messages)
    assert choose(messages, 5, lambda _: 10, answered=False)[0] == messages[4:]


def test_a_long_exchange_keeps_its_question() -> None:
    messages = [user("old"), said(), user("q"), *calls("a"), *calls("b", "c"), *calls("d")]
    kept, dropped = choose(messages, 40, lambda _: 10, answered=False)
    assert kept == [user("q"), *calls("d")]
    assert dropped == [user("old"), said(), *calls("a"), *calls("b", "c")]


def test_summaries_alternate() -> None:
    made = summarised("short")
    assert [message["role"] for message in made] == ["user", "assistant"]
    assert is_summary(made)
    assert not is_summary([user(), said()])
    assert split_system([SYSTEM, *made]) == ([SYSTEM], made)
