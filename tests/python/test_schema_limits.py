"""Small JSON schemas that would take minutes or gigabytes are refused, and soon."""

from __future__ import annotations

import json
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


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": list(range(5000))},
        {"type": "array", "minItems": 256, "prefixItems": [True] * 256},
        {"type": "object", "properties": {f"m{i}": {"type": "null"} for i in range(200)}},
    ],
)
def test_many_combinations(scheduler: pronk.InferenceScheduler, schema: Any) -> None:
    ways = [{"anyOf": [{"title": str(i)} for i in range(100)]} for _ in range(2)]
    with pytest.raises(pronk.GrammarError, match="values, members and items"):
        follow(scheduler, {**schema, "allOf": ways})


def test_a_long_list_of_values(scheduler: pronk.InferenceScheduler) -> None:
    # To look each of them up in both lists would take minutes.
    values = [str(i) for i in range(20000)]
    schema = {"allOf": [{"enum": [*values, 5]}, {"enum": [*values[-1:], 5]}]}
    assert json.loads(follow(scheduler, schema)) in (values[-1], 5)


def test_schemas_far_inside_of_each_other(scheduler: pronk.InferenceScheduler) -> None:
    # By references, as their depth in the text is limited: each within the one before.
    n = 2000
    arrays: Any = {f"g{i}": {} for i in range(n // 100 + 1)}
    for i in range(n):
        below = i + 1
        arrays[f"g{i // 100}"][f"a{i % 100}"] = {
            "type": "array",
            "items": {"$ref": f"#/$defs/g{below // 100}/a{below % 100}"},
            "minItems": 1,
            "maxItems": 1,
        }
    arrays[f"g{n // 100}"][f"a{n % 100}"] = {"type": "null"}
    assert follow(scheduler, {"$defs": arrays, "$ref": "#/$defs/g0/a0"}).count("[") > 10
