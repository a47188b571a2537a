"""Small JSON schemas that would take minutes or gigabytes are refused, and soon."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import pronk
from pronk.testing import ScriptedModel

# Each ideograph is a character that no set of another pattern has.
FIRST = 0x4E00


@pytest.fixture(scope="module")
def scheduler() -> Iterator[pronk.InferenceScheduler]:
    model = ScriptedModel(pieces=[bytes([byte]) for byte in range(256)])
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=1024) as scheduler:
        yield scheduler


def characters(n: int) -> list[str]:
    return [chr(FIRST + i) for i in range(n)]


def words(n: int, end: str = "a") -> str:
    return "|".join(each + end for each in characters(n))


def follow(scheduler: pronk.InferenceScheduler, schema: Any) -> str:
    return scheduler.generate("Q", json_schema=schema, temperature=1, max_tokens=300).result().text


@pytest.mark.parametrize(
    ("pattern", "match"),
    [
        ("^" + "".join(characters(20000)) + "$", "sets of characters"),
        ("^" + "".join(f"(?=.*{each})" for each in characters(2000)), "pairs of a character"),
        (words(1400), "transitions"),
    ],
)
def test_a_costly_pattern(scheduler: pronk.InferenceScheduler, pattern: str, match: str) -> None:
    with pytest.raises(pronk.GrammarError, match=r"json_schema\.pattern: .*" + match):
        follow(scheduler, {"type": "string", "pattern": pattern})


def test_many_costly_patterns(scheduler: pronk.InferenceScheduler) -> None:
    members = {f"m{i}": {"type": "string", "pattern": words(120, f"{i}$")} for i in range(40)}
    with pytest.raises(pronk.GrammarError, match="bytes of rules"):
        follow(scheduler, {"type": "object", "properties": members})


def test_many_patterns_of_names(scheduler: pronk.InferenceScheduler) -> None:
    patterns = {f"^a{i}[0-9]*x": True for i in range(120)}
    with pytest.raises(pronk.GrammarError, match="states in all"):
        follow(scheduler, {"type": "object", "patternProperties": patterns})
