"""JSON schemas: what a grammar makes of them validates, or is refused with the place."""

from __future__ import annotations

import json
import os
import random
import re
from datetime import date, datetime, time, timedelta
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import jsonschema
import pytest
import random_schemas
from pydantic import UUID4, BaseModel, ConfigDict, Field, PositiveFloat, conint

import pronk
from pronk.testing import ScriptedModel

SCHEMAS = int(os.environ.get("PRONK_TEST_SCHEMAS", "120"))


@pytest.fixture(scope="module")
def scheduler() -> Any:
    # Tokens of one character each, most of them such as JSON has: texts come to an end.
    pieces: list[bytes | str] = [bytes([byte]) for byte in range(256)]
    pieces += list('""""",:[]{}0123456789-+.eT') * 8
    model = ScriptedModel(pieces=pieces)
    with pronk.InferenceScheduler(8, engine=model.engine, n_ctx=2048) as scheduler:
        yield scheduler
    assert not model.violations


def answers(
    scheduler: pronk.InferenceScheduler, schema: Any, n: int = 12, max_tokens: int = 1500
) -> list[str]:
    """Return the texts of those of ``n`` answers that came to an end."""
    running = [
        scheduler.generate(
            f"Q{seed}", json_schema=schema, seed=seed, temperature=1, max_tokens=max_tokens
        )
        for seed in range(n)
    ]
    done = [generation.result() for generation in running]
    assert {each.finish_reason for each in done} <= {"stop", "length"}
    return [each.text for each in done if each.finish_reason == "stop"]


def check(scheduler: pronk.InferenceScheduler, schema: Any, n: int = 12) -> list[Any]:
    texts = answers(scheduler, schema, n)
    assert texts
    values = []
    for text in texts:
        try:
            value = json.loads(text)
            jsonschema.validate(value, schema)
        except Exception as error:
            raise AssertionError(f"{text!r} under {json.dumps(schema)}") from error
        values.append(value)
    return values


PATTERNS = [
    "^.{3}$",
    "^[^a]{3}$",
    '^["\\\\]+$',
    r"^\\$",
    '^"quoted"$',
    "^é{3}$",
    "^[日本]{2,4}$",
    "^(日本)+$",
    r"^\d{3}-\w+$",
    r"^\D{2}\W\S$",
    r"^\s\t\n$",
    r"^a\/b$",
    r"^\u00e9\x41$",
    r"^\bword\b$",
    "[0-9]",
    "^a",
    "z$",
    "^a*?b+?$",
    "^(?=.*[0-9])(?=.*[a-z]).{4,8}$",
    "^(?!admin)[a-z]{5}$",
    "^yes$|^no$",
    "(?i)^on$",
    "^[\x01-\x1f]$",
    "^[^\x20-\x7e]$",
    "",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(scheduler: pronk.InferenceScheduler, pattern: str) -> None:
    for value in check(scheduler, {"type": "string", "pattern": pattern}):
        assert re.search(pattern, value)


def test_pattern_with_a_length(scheduler: pronk.InferenceScheduler) -> None:
    schema = {"type": "string", "pattern": "^[a-z]+(-[a-z]+)*$", "minLength": 3, "maxLength": 9}
    for value in check(scheduler, schema, 40):
        assert 3 <= len(value) <= 9
    # Too many states for the whole length: a shorter one is right too.
    long = {"type": "string", "pattern": r"^[\w.]+@[\w.]+\.[a-z]{2,60}$", "maxLength": 2000}
    check(scheduler, long, 3)


NO_INTEGERS = [
    {"minimum": 0.1, "maximum": 0.2},
    {"exclusiveMinimum": -0.5, "exclusiveMaximum": 0},
]
NUMBERS: list[dict[str, Any]] = [
    {"minimum": -120, "maximum": -5},
    {"maximum": -5},
    {"minimum": 100},
    {"minimum": 105, "maximum": 1004},
    {"exclusiveMinimum": 0, "maximum": 3},
    {"minimum": 1.5, "exclusiveMaximum": 4.5},
    {"minimum": -(1 << 63), "maximum": (1 << 63) - 1},
    {"minimum": 10**18},
    {"minimum": 0, "exclusiveMinimum": 7, "maximum": 9},
    {"multipleOf": 7},
    {"multipleOf": 100},
    {"multipleOf": 128, "maximum": -12345678},
    {"multipleOf": 1000, "minimum": 5000, "maximum": 20000},
    {"multipleOf": 5, "exclusiveMinimum": 0, "exclusiveMaximum": 100},
    *NO_INTEGERS,
    {"minimum": 1e-7, "maximum": 1e7},
    {"exclusiveMinimum": 1000.5},
    {"maximum": -2.25},
    {"multipleOf": 0.25, "minimum": 0},
    {"multipleOf": 0.1},
    {},
]


@pytest.mark.parametrize("kind", ["integer", "number"])
@pytest.mark.parametrize("bounds", NUMBERS, ids=str)
def test_numbers(scheduler: pronk.InferenceScheduler, kind: str, bounds: dict[str, Any]) -> None:
    schema = {"type": kind, **bounds}
    if kind == "integer" and bounds in NO_INTEGERS:
        with pytest.raises(pronk.GrammarError, match="no number"):
            scheduler.generate("Q", json_schema=schema)
        return
    check(scheduler, schema, 30)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": False},
        {"type": "array", "prefixItems": [{"const": 1}], "items": False, "minItems": 1},
        {"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "maxItems": 1},
        {"type": "array", "prefixItems": [{"const": 1}], "items": {"type": "null"}, "minItems": 3},
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "items": [{"const": 1}],
            "additionalItems": False,
            "type": "array",
        },
        {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 10_000},
        {"type": "string", "maxLength": 10_000},
        {"type": "string", "enum": ["a", 1, "b"]},
        {"type": "integer", "enum": [1, 5, 9], "minimum": 2},
        {"enum": ["ab", "b", 3], "pattern": "^a", "type": "string"},
        {"enum": [{"a": 1}, {"a": "x"}], "properties": {"a": {"type": "string"}}},
        {"type": "object", "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a", 'b"\n\\é']},
        {"type": "object", "properties": {'q"\\\n-]^é': True}, "required": ['q"\\\n-]^é']},
        {
            "type": "object",
            "properties": {"ab": {"type": "null"}, 'a"]\\^-': {"type": "null"}},
            "additionalProperties": {"type": "integer"},
        },
        {"type": "object", "patternProperties": {"^[a-c]$": {"type": "null"}, "x": {"const": 1}}},
        {"type": "object", "propertyNames": {"enum": ["a", 'b"']}, "minProperties": 1},
        {"type": "object", "propertyNames": {"maxLength": 3}, "maxProperties": 2},
        {"type": "object", "properties": {"a": {}, "b": {}}, "minProperties": 1},
        {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "maxProperties": 1},
        {"type": "object", "properties": {"a": False, "b": True}, "required": ["b"]},
        {"allOf": [{"type": "string"}, {"maxLength": 3}, {"pattern": "^a"}]},
        {"allOf": [{"minimum": 3}, {"maximum": 5}, {"type": "integer"}]},
        {
            "type": "object",
            "properties": {"id": {"type": "integer", "minimum": 0}},
            "required": ["id"],
            "oneOf": [
                {"properties": {"k": {"const": 1}}, "required": ["k"]},
                {"properties": {"k": {"const": 2}, "id": {"maximum": 4}}, "required": ["k"]},
            ],
        },
        {
            "allOf": [
                {"properties": {"a": {"type": "integer"}}, "additionalProperties": False},
                {"properties": {"a": {"minimum": 5}, "b": {}}, "required": ["a"]},
            ]
        },
        {
            "type": "object",
            "properties": {"a": {"enum": [1, 2]}, "b": {}},
            "required": ["a"],
            "if": {"properties": {"a": {"const": 1}}},
            "then": {"required": ["b"]},
            "else": {"properties": {"b": {"const": 0}}},
        },
        {
            "type": "object",
            "properties": {"a": {"type": "null"}, "b": {"type": "null"}},
            "dependentRequired": {"a": ["b"]},
        },
        {"anyOf": [{"type": "integer", "minimum": 5, "maximum": 3}, {"const": "x"}]},
        {"anyOf": [False, {"const": 1}]},
        {"$defs": {"A_b": {"const": 1}, "A-b": {"const": 2}}, "$ref": "#/$defs/A-b"},
        {
            "$defs": {"é": {"const": 1}, "è": {"const": 2}, "a/b~": {"const": 3}},
            "prefixItems": [
                {"$ref": "#/$defs/é"},
                {"$ref": "#/$defs/%C3%A8"},
                {"$ref": "#/$defs/a~1b~0", "description": "three"},
            ],
            "minItems": 3,
            "type": "array",
        },
        {"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n", "minimum": 3, "maximum": 8},
        {
            "type": "object",
            "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
            "required": ["next"],
        },
        {"not": False, "type": "null"},
        True,
        {"type": ["null", "integer"], "minimum": 3},
        {"minimum": 3},
        {"minLength": 2, "maxLength": 3},
    ],
    ids=lambda schema: json.dumps(schema)[:60],
)
def test_schemas(scheduler: pronk.InferenceScheduler, schema: Any) -> None:
    check(scheduler, schema, 30)


def test_others_than_the_named_members(scheduler: pronk.InferenceScheduler) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "null"}},
        "additionalProperties": {"type": "boolean"},
    }
    values = check(scheduler, schema, 60)
    assert any(set(value) - {"a"} for value in values)
    counted = {"type": "object", "additionalProperties": {"type": "null"}, "maxProperties": 2}
    assert {len(value) for value in check(scheduler, counted, 60)} == {0, 1, 2}


BAD: list[tuple[Any, str]] = [
    ({"type": "string", "pattern": "(("}, r"json_schema\.pattern: got '\(' without '\)'"),
    ({"properties": {"a": {"pattern": r"\1"}}}, r"properties\.a\.pattern: got a reference"),
    ({"type": "string", "pattern": "^(a|b)*a(a|b){14}$"}, "pattern with more than 4096 states"),
    ({"type": "string", "pattern": "^a$b"}, "no text"),
    ({"type": "integer", "minimum": 3, "maximum": 2}, "bounds"),
    ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength"),
    ({"type": "array", "minItems": 3, "maxItems": 2}, "minItems"),
    ({"type": "array", "items": False, "minItems": 1}, "nothing follows"),
    ({"type": "string", "enum": [1]}, "values that the rest"),
    ({"type": "object", "required": ["a"], "additionalProperties": False}, "additionalProperties"),
    ({"allOf": [{"type": "string"}, {"type": "null"}]}, "exclude each other"),
    ({"not": {"type": "null"}}, r"json_schema\.not"),
    ({"type": "array", "contains": {"const": 1}}, "contains"),
    ({"type": "string", "minLength": 5000}, "minLength: got repetitions"),
    ({"type": "string", "minLength": -1}, "minLength"),
    ({"type": "integer", "multipleOf": 0}, "multipleOf"),
    ({"type": "integer", "minimum": "3"}, "minimum: got a string"),
    ({"properties": []}, "properties: got an array"),
    ({"items": 3}, "items: got a number"),
    ({"$ref": "#/$defs/a"}, r"\$ref"),
    ({"$ref": "#"}, "refers to itself"),
    ({"anyOf": []}, "anyOf: got none"),
    (False, "false"),
    (
        {"anyOf": [{"pattern": f"^(a|b)*a(a|b){{10}}c{{{i}}}$"} for i in range(100, 250)]},
        "states in all",
    ),
]


@pytest.mark.parametrize(("schema", "match"), BAD, ids=lambda value: str(value)[:40])
def test_refused(scheduler: pronk.InferenceScheduler, schema: Any, match: str) -> None:
    for refuse in (
        lambda: scheduler.generate("Q", json_schema=schema),
        lambda: scheduler.chat([{"role": "user", "content": "Q"}], json_schema=schema),
    ):
        with pytest.raises(pronk.GrammarError, match=match) as caught:
            refuse()
        assert str(caught.value).startswith("json_schema")


def test_random_schemas(scheduler: pronk.InferenceScheduler) -> None:
    seed = int(os.environ.get("PRONK_TEST_SEED", random.randrange(1 << 32)))
    print(f"PRONK_TEST_SEED={seed} PRONK_TEST_SCHEMAS={SCHEMAS}")
    rng = random.Random(seed)
    n_whole = n_refused = 0
    for _ in range(SCHEMAS):
        schema = random_schemas.document(rng)
        try:
            texts = answers(scheduler, schema, 3, 600)
        except pronk.GrammarError as error:
            # Patterns may be too long for a length, or exclude each other.
            reason = str(error)
            n_refused += 1
            if not re.search("pattern|states|follow|excludes", reason):
                raise
            continue
        for text in texts:
            n_whole += 1
            try:
                jsonschema.validate(json.loads(text), schema)
            except Exception as error:
                raise AssertionError(f"{text!r} under {json.dumps(schema)}") from error
    print(f"{n_whole} of {3 * SCHEMAS} whole, {n_refused} schemas refused")
    assert n_whole > SCHEMAS // 2
    assert n_refused < SCHEMAS // 8 + 3


class Colour(Enum):
    RED = "red"
    BLUE = 'bl"ue'


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: conint(ge=1, le=9)  # type: ignore[valid-type]


class Dog(BaseModel):
    kind: Literal["dog"]
    weight: PositiveFloat


class Everything(BaseModel):
    model_config = ConfigDict(extra="forbid")

    code: Annotated[str, Field(pattern=r"^[A-Z]{2}\d{3}$")]
    loose: Annotated[str, Field(pattern=r"\d", max_length=30)]
    share: Annotated[float, Field(ge=0, le=1)]
    delta: Annotated[float, Field(gt=-2.5, lt=0)]
    count: Annotated[int, Field(gt=-100, lt=-3)]
    step: Annotated[int, Field(multiple_of=5, ge=0)]
    pair: tuple[int, Colour]
    colours: set[Colour]
    table: dict[str, Annotated[int, Field(ge=0)]] = Field(max_length=2)
    keyed: dict[Annotated[str, Field(pattern="^k[0-9]$")], bool]
    pet: Cat | Dog = Field(discriminator="kind")
    born: date
    at: datetime
    noon: time
    lasts: timedelta
    uid: UUID
    uid4: UUID4
    note: str | None = Field(default=None, max_length=5)
    inner: Everything | None = None


def test_a_pydantic_model(scheduler: pronk.InferenceScheduler) -> None:
    running = [
        scheduler.generate("Q", json_schema=Everything, seed=seed, temperature=1, max_tokens=1800)
        for seed in range(24)
    ]
    n_whole = 0
    for generation in running:
        done = generation.result()
        if done.finish_reason == "stop":
            n_whole += 1
            assert isinstance(done.parsed, Everything)
    assert n_whole > 4


def test_no_half_of_a_surrogate_pair(scheduler: pronk.InferenceScheduler) -> None:
    for schema in ({"type": "string"}, {"type": "string", "minLength": 40}, {"type": "array"}):
        for text in answers(scheduler, schema, 30):
            json.dumps(json.loads(text), ensure_ascii=False).encode()


def test_bytes_make_whole_characters() -> None:
    # Of two and more bytes, among them such as make no character.
    pieces: list[bytes | str] = [bytes([byte]) for byte in range(256)]
    pieces += [bytes([byte]) for byte in (0xE0, 0xED, 0xF0, 0xF4, 0x80, 0x8F, 0x90, 0xA0) * 40]
    model = ScriptedModel(pieces=pieces)
    schema = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 1}}
    with pronk.InferenceScheduler(8, engine=model.engine, n_ctx=512) as scheduler:
        for text in answers(scheduler, {**schema, "minItems": 20, "maxItems": 20}, 40, 400):
            jsonschema.validate(json.loads(text), schema)
            assert "\ufffd" not in text


def tool(parameters: Any, name: str = "go") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


USER = [{"role": "user", "content": "Go."}]


def test_arguments_of_tools(scheduler: pronk.InferenceScheduler) -> None:
    parameters = {
        "type": "object",
        "properties": {
            "code": {"type": "string", "pattern": '^["\\\\a]{3}$', "description": "A code"},
            "n": {"type": "integer", "maximum": -5},
            "share": {"type": "number", "minimum": 0, "maximum": 1},
            "point": {"$ref": "#/$defs/point"},
            "other": {"$ref": "#/$defs/point"},
            "map": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 3}},
            "loose": {"not": {"const": 1}, "type": "boolean"},
        },
        "required": ["code", "n", "share", "point", "other", "map", "loose"],
        "$defs": {
            "point": {"type": "array", "prefixItems": [{"type": "null"}] * 2, "items": False}
        },
    }
    n_calls = 0
    for seed in range(30):
        done = scheduler.chat(
            USER,
            tools=[tool(parameters)],
            tool_choice="required",
            seed=seed,
            temperature=1,
            max_tokens=900,
        ).result()
        assert done.message is not None
        for call in done.message.get("tool_calls", []):
            jsonschema.validate(json.loads(call["function"]["arguments"]), parameters)
            n_calls += 1
    assert n_calls > 10


def test_the_prompt_has_a_tool_as_it_was_given(scheduler: pronk.InferenceScheduler) -> None:
    parameters = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "pattern": "[0-9]", "title": "A"},
            "b": {"type": "array", "prefixItems": [True], "items": False},
        },
        "required": ["a"],
    }
    assert scheduler.engine is not None
    prompts = {
        scheduler.engine.render_chat(USER, tools=[tool(parameters)], tool_choice=choice)
        for choice in ("none", "auto", "required", "go")
    }
    assert len(prompts) == 1
    assert json.dumps(parameters["properties"]["a"]) in prompts.pop()  # type: ignore[index]


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"type": "robot"}, r"tools\[1\]\.function\.parameters\.type"),
        ({"type": "object", "properties": {"a": {"pattern": "(("}}}, r"tools\[1\].*\.a\.pattern"),
        ({"type": "object", "properties": {"a": {"$ref": "#/nope"}}}, r"tools\[1\].*\$ref"),
        ({"type": "object", "properties": {"a": 3}}, r"tools\[1\].*\.a: got a number"),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, r"tools\[1\].*\.a"),
    ],
)
def test_a_bad_tool_is_named(
    scheduler: pronk.InferenceScheduler, parameters: Any, match: str
) -> None:
    with pytest.raises(pronk.GrammarError, match=match):
        scheduler.chat(USER, tools=[tool({"type": "object"}, "fine"), tool(parameters)])


def test_an_alternative_that_holds_itself_and_that_no_value_follows(
    scheduler: pronk.InferenceScheduler,
) -> None:
    impossible = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/impossible"}},
        "additionalProperties": False,
        "minProperties": 2,
    }
    same = {"$ref": "#/$defs/impossible"}
    schema = {"anyOf": [same, same, {"type": "null"}], "$defs": {"impossible": impossible}}
    assert json.loads(answers(scheduler, schema)[0]) is None


def test_schemas_after_one_that_no_value_follows(scheduler: pronk.InferenceScheduler) -> None:
    # Each goes by a name of its own, although the first one is left out.
    count = {"type": "integer", "minimum": 0}
    left_out = {
        "type": "object",
        "properties": {"count": {"$ref": "#/$defs/count"}, "never": False},
        "required": ["count", "never"],
    }
    chain = {
        "type": "object",
        "properties": {
            "count": {"$ref": "#/$defs/count"},
            "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/chain"}]},
        },
        "required": ["count", "next"],
        "additionalProperties": False,
    }
    schema = {
        "anyOf": [{"$ref": "#/$defs/left_out"}, {"$ref": "#/$defs/chain"}],
        "$defs": {"count": count, "left_out": left_out, "chain": chain},
    }
    check(scheduler, schema, 40)
