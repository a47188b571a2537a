"""Grammars and schemas: what comes out follows them, and bad ones hurt nobody."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
import random_schemas
from pydantic import BaseModel, Field

import pronk
from pronk.testing import ScriptedModel


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture
def scheduler(model: ScriptedModel) -> Any:
    with pronk.InferenceScheduler(3, engine=model.engine, n_ctx=2048) as scheduler:
        yield scheduler
    assert not model.violations


CHAIN = "\n".join(f"r{i} ::= r{i + 1} | r{i + 1}" for i in range(60))
GRAMMARS = [
    ('root ::= "yes" | "no"', r"yes|no"),
    ('root ::= [a-c]{3} "-" [0-9]+ "!"', r"[a-c]{3}-[0-9]+!"),
    ('root ::= "é" "漢"? "🙂"', r"é漢?🙂"),
    ('# words\nroot ::= word (" " word){2}\nword ::= "ab" | "cd"', r"(ab|cd)( (ab|cd)){2}"),
    ('root ::= ("(" root ")")? "x"', r"\(*x(\)x)*"),
    ('root ::= root2\nroot2 ::= "a" | root2', "a"),
    ("root ::= .", r"(?s:.)"),
    # Looking for left recursion in it must not take time without end.
    (f'root ::= r0\n{CHAIN}\nr60 ::= "a"', "a"),
]


@pytest.mark.parametrize(("grammar", "pattern"), GRAMMARS)
def test_text_follows_the_grammar(
    scheduler: pronk.InferenceScheduler, grammar: str, pattern: str
) -> None:
    for seed in range(8):
        done = scheduler.generate(
            "Say something", grammar=grammar, seed=seed, temperature=1, max_tokens=60
        ).result()
        if done.finish_reason == "stop":
            assert re.fullmatch(pattern, done.text), done.text
        assert done.message is None
        assert done.parsed is None


def test_greedy_takes_the_likeliest_that_is_allowed(
    model: ScriptedModel, scheduler: pronk.InferenceScheduler
) -> None:
    model.script("Q", "maybe")
    options = {"temperature": 0, "grammar": 'root ::= "maybe" | "yes"'}
    assert scheduler.generate("Q", **options).result().text == "maybe"
    model.script("Q", "perhaps")
    assert scheduler.generate("Q", **options).result().text in ("maybe", "yes")


def test_the_end_needs_no_token(model: ScriptedModel, scheduler: pronk.InferenceScheduler) -> None:
    done = scheduler.generate("Q", grammar='root ::= "ab"', max_tokens=2).result()
    assert (done.text, done.finish_reason, done.usage.completion_tokens) == ("ab", "stop", 2)
    # Nothing but the end could follow, and that is forbidden.
    done = scheduler.generate("Q", grammar='root ::= "ab"', ignore_eos=True).result()
    assert (done.text, done.finish_reason) == ("ab", "stop")


def test_tokens_by_number(model: ScriptedModel, scheduler: pronk.InferenceScheduler) -> None:
    a = model.engine.tokenize("a", add_special=False)[0]
    done = scheduler.generate("Q", grammar=f"root ::= <[{a}]> !<[{a}]>").result()
    assert len(done.text) <= 2
    assert done.tokens[0] == a
    assert done.tokens[1] != a
    done = scheduler.generate("Q", grammar='root ::= "x" <bos> "y"').result()
    assert done.tokens[1] == model.engine.bos
    assert done.text == "xy"


def test_tokens_that_end_within_a_character() -> None:
    data = "é漢🙂".encode()
    pieces: list[bytes | str] = [bytes([byte]) for byte in range(256)]
    pieces += [data[i : i + 2] for i in range(len(data) - 1)]
    model = ScriptedModel(pieces=pieces)
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=256) as scheduler:
        for seed in range(20):
            done = scheduler.generate(
                "Q", grammar='root ::= "é漢🙂" | [à-ü] "!"', seed=seed, temperature=2
            ).result()
            assert re.fullmatch("é漢🙂|[à-ü]!", done.text), done.text


def test_logprobs(model: ScriptedModel, scheduler: pronk.InferenceScheduler) -> None:
    grammar = 'root ::= "q" "z" "q"'
    done = scheduler.generate("Q", grammar=grammar, logprobs=3, temperature=0).result()
    assert done.text == "qzq"
    assert done.logprobs is not None
    # They are the model's own, of tokens that it may not have wanted.
    for token, entry in zip(done.tokens, done.logprobs, strict=True):
        assert entry.token == token
        assert entry.logprob <= max(logprob for _, logprob in entry.top) + 1e-5


@pytest.mark.parametrize("top_k", [0, 1, 40])
def test_large_vocabulary(top_k: int) -> None:
    # Some positions allow thousands of tokens, others few that are none of the likeliest.
    words = [f"w{number:04}" for number in range(5000)]
    model = ScriptedModel(pieces=[*(bytes([byte]) for byte in range(256)), *words])
    with pronk.InferenceScheduler(2, engine=model.engine, n_ctx=256) as scheduler:
        for seed in range(6):
            done = scheduler.generate(
                "Q",
                grammar='root ::= "w" [0-9]{4} ("x" | "yz") "w" [0-4]{4} "!"',
                top_k=top_k,
                temperature=1,
                seed=seed,
            ).result()
            assert re.fullmatch(r"w\d{4}(x|yz)w[0-4]{4}!", done.text)


def test_tool_calls_at_a_high_temperature(scheduler: pronk.InferenceScheduler) -> None:
    user = [{"role": "user", "content": "Go."}]
    tools = [
        {
            "type": "function",
            "function": {
                "name": "go",
                "parameters": {
                    "type": "object",
                    "properties": {"to": {"type": "string"}, "n": {"type": "integer"}},
                    "required": ["to"],
                },
            },
        }
    ]
    options: dict[str, Any] = {"temperature": 1.5, "max_tokens": 150}
    plain = [scheduler.generate(f"P{i}", seed=i, max_tokens=60) for i in range(10)]
    alone = [g.result().text for g in plain]
    running = [
        scheduler.chat(user, tools=tools, tool_choice="required", seed=seed, **options)
        for seed in range(60)
    ]
    beside = [scheduler.generate(f"P{i}", seed=i, max_tokens=60) for i in range(10)]
    for generation in running:
        done = generation.result()
        assert done.finish_reason in ("tool_calls", "length")
        assert done.message is not None
        for each in done.message.get("tool_calls", []):
            assert each["function"]["name"] == "go"
            arguments = json.loads(each["function"]["arguments"])
            jsonschema.validate(arguments, tools[0]["function"]["parameters"])  # type: ignore[index]
    assert [g.result().text for g in beside] == alone


def test_what_has_to_follow_is_taken_at_once(
    model: ScriptedModel, scheduler: pronk.InferenceScheduler
) -> None:
    fixed = "the quick brown fox jumps over the lazy dog"
    grammar = f'root ::= ("a" | "b") "{fixed} é" [0-9] "{fixed}"'
    before = model.counters.decodes_finished
    done = scheduler.generate("Q", grammar=grammar, temperature=0).result()
    decodes = model.counters.decodes_finished - before
    assert re.fullmatch(f"[ab]{fixed} é[0-9]{fixed}", done.text)
    # A step each would be one for every token.
    assert decodes < 20
    assert done.usage.completion_tokens == len(done.tokens) == len(done.text.encode())
    # Log probabilities take a step each, and make no difference to the text.
    slow = scheduler.generate("Q", grammar=grammar, temperature=0, logprobs=0).result()
    assert slow.text == done.text
    assert slow.tokens == done.tokens
    assert slow.logprobs is not None
    assert len(slow.logprobs) == len(slow.tokens)


@pytest.mark.parametrize(("max_tokens", "stop"), [(5, ()), (200, "brown")])
def test_what_has_to_follow_ends_where_it_should(
    scheduler: pronk.InferenceScheduler, max_tokens: int, stop: Any
) -> None:
    grammar = 'root ::= [ab] " the quick brown fox jumps" [0-9]'
    done = scheduler.generate("Q", grammar=grammar, max_tokens=max_tokens, stop=stop).result()
    if stop:
        assert (done.text[1:], done.finish_reason) == (" the quick ", "stop")
    else:
        assert (done.text[1:], done.finish_reason) == (" the", "length")
        assert done.usage.completion_tokens == 5


BAD_GRAMMARS = [
    ("", "empty"),
    ("foo", "::="),
    ('x ::= "a"', "no rule 'root'"),
    ("root ::= foo", "'foo'"),
    ('root ::= "abc', "end of input"),
    ('root ::= root "a"', "'root' that can begin with itself"),
    ('root ::= a\na ::= b? a "x"\nb ::= "y"', "'a' that can begin with itself"),
    ("root ::= root", "no text can follow"),
    ('root ::= "a"{5,2}', r"\{5,2\}"),
    ('root ::= "a"{99999999999999999999999}', "repetition"),
    ('root ::= "a"{2000}{2000}', "repeti"),
    ('root ::= "' + "a" * 100_000 + '"{2000}', "elements"),
    ("root ::= " + "(" * 100_000, "nested"),
    ('root ::= "\x00"', r"U\+0000"),
    ("root ::= <nope>", "<nope>"),
    ("root ::= <[99999]>", "99999"),
    ('root ::= "\\q"', "escape"),
    ("root ::= *", "preceding"),
    ("#" * (2 << 20), "bytes"),
]


@pytest.mark.parametrize(("grammar", "match"), BAD_GRAMMARS, ids=lambda text: str(text)[:30])
def test_bad_grammars_are_refused_at_once(
    model: ScriptedModel, scheduler: pronk.InferenceScheduler, grammar: str, match: str
) -> None:
    model.hold()
    other = scheduler.generate("Other", temperature=0, max_tokens=8)
    with pytest.raises(pronk.GrammarError, match=match):
        scheduler.generate("Q", grammar=grammar)
    model.resume()
    assert other.result().text == model.expected_text("Other", 8)


def test_errors_stay_off_stderr(
    scheduler: pronk.InferenceScheduler, capfd: pytest.CaptureFixture[str]
) -> None:
    for grammar, _ in BAD_GRAMMARS:
        with pytest.raises(pronk.GrammarError):
            scheduler.generate("Q", grammar=grammar)
    for schema, _ in BAD_SCHEMAS:
        with pytest.raises(pronk.GrammarError):
            scheduler.generate("Q", json_schema=schema)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def deep(n: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(n):
        schema = {"type": "array", "items": schema}
    return schema


BAD_SCHEMAS: list[tuple[Any, str]] = [
    ("", "empty"),
    ("{", "no JSON"),
    ("[]", "an array"),
    ("3", "a number"),
    ({"type": "robot"}, "robot"),
    ({"$ref": "#/definitions/none"}, "definitions"),
    ({"$ref": "https://example.org/schema"}, "ref"),
    ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "json_schema|grammar"),
    ({"type": "string", "pattern": "(("}, "pattern"),
    ({"properties": {f"p{i}": {} for i in range(1000)}}, "1000 members"),
    (deep(200), "nested"),
    ({"enum": ["x" * (1 << 19)]}, "bytes"),
    ({"type": "array", "items": {}, "minItems": 100_000}, "repeti"),
]


@pytest.mark.parametrize(("schema", "match"), BAD_SCHEMAS, ids=lambda value: str(value)[:30])
def test_bad_schemas(scheduler: pronk.InferenceScheduler, schema: Any, match: str) -> None:
    with pytest.raises(pronk.GrammarError, match=match):
        scheduler.generate("Q", json_schema=schema)


class Callback(BaseModel):
    call: Callable[[], None]


def test_bad_values(scheduler: pronk.InferenceScheduler) -> None:
    untyped: Any = scheduler
    for bad in (3, [], object(), int):
        with pytest.raises(pronk.InvalidTypeError, match="json_schema"):
            untyped.generate("Q", json_schema=bad)
    user = [{"role": "user", "content": "Q"}]
    for bad in (BaseModel, Callback):
        with pytest.raises(pronk.InvalidTypeError, match=r"json_schema: got .* no JSON schema"):
            untyped.generate("Q", json_schema=bad)
        with pytest.raises(pronk.InvalidTypeError, match=r"json_schema: got .* no JSON schema"):
            untyped.chat(user, response_format=bad)
    with pytest.raises(pronk.InvalidArgumentError, match="JSON cannot hold"):
        untyped.generate("Q", json_schema={"minimum": float("nan")})
    with pytest.raises(pronk.InvalidTypeError, match="grammar"):
        untyped.generate("Q", grammar=3)
    with pytest.raises(pronk.InvalidArgumentError, match="one of the two"):
        untyped.generate("Q", grammar='root ::= "a"', json_schema={})
    for bad in ({"type": "yaml"}, {"type": "json_schema"}, {}):
        with pytest.raises(pronk.InvalidArgumentError, match="response_format"):
            untyped.chat([{"role": "user", "content": "Q"}], response_format=bad)


def test_ambiguous_grammar_ends_its_own_generation_only(
    model: ScriptedModel, scheduler: pronk.InferenceScheduler
) -> None:
    # Each letter leaves three times as many readings open.
    grammar = 'root ::= e\ne ::= "a" | "a" e "b"? | "a" e "c"?'
    a, eos = ord("a"), model.engine.eos
    bias = {a: 50.0, eos: -50.0}
    bad = scheduler.generate("Q", grammar=grammar, logit_bias=bias, max_tokens=100)
    other = scheduler.generate("Other", temperature=0, max_tokens=30)
    with pytest.raises(pronk.GrammarError, match="readings"):
        bad.result()
    assert other.result().text == model.expected_text("Other", 30)


def test_cancelled_while_it_is_kept_to_a_grammar(scheduler: pronk.InferenceScheduler) -> None:
    generations = [
        scheduler.generate("Q", grammar="root ::= [a-z]*", ignore_eos=True) for _ in range(20)
    ]
    for generation in generations:
        generation.cancel()
    assert {g.result().finish_reason for g in generations} <= {"cancelled", "length"}


def test_same_seed_same_text_in_company(scheduler: pronk.InferenceScheduler) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    options: dict[str, Any] = {"json_schema": schema, "temperature": 1, "max_tokens": 80}
    alone = [scheduler.generate("Q", seed=seed, **options).result().text for seed in range(6)]
    together = [scheduler.generate("Q", seed=seed, **options) for seed in range(6)]
    plain = [scheduler.generate(f"P{i}", max_tokens=50) for i in range(3)]
    assert [g.result().text for g in together] == alone
    for generation in plain:
        generation.result()


class Point(BaseModel):
    x: int = Field(ge=-9, le=9)
    y: int = Field(ge=-9, le=9)
    label: str = Field(max_length=5)


class Drawing(BaseModel):
    points: list[Point] = Field(max_length=2)


def test_parsed_is_the_value(scheduler: pronk.InferenceScheduler) -> None:
    for seed in range(5):
        done = scheduler.generate(
            "Q", json_schema=Drawing, seed=seed, temperature=1, max_tokens=400
        ).result()
        if done.finish_reason == "stop":
            assert isinstance(done.parsed, Drawing)
            assert done.parsed == Drawing.model_validate_json(done.text)
        else:
            assert done.parsed is None


@pytest.mark.parametrize("as_text", [False, True])
def test_schema_as_dict_or_text(scheduler: pronk.InferenceScheduler, as_text: bool) -> None:
    schema = {"type": "array", "items": {"enum": [1, "a"]}, "minItems": 1, "maxItems": 3}
    given = json.dumps(schema) if as_text else schema
    done = scheduler.generate("Q", json_schema=given, max_tokens=400).result()
    jsonschema.validate(done.parsed, schema)
    assert done.parsed == json.loads(done.text)


@pytest.mark.parametrize(
    "response_format",
    [
        {"type": "json_schema", "json_schema": {"name": "p", "schema": Point.model_json_schema()}},
        Point,
    ],
    ids=["dict", "class"],
)
def test_response_format(scheduler: pronk.InferenceScheduler, response_format: Any) -> None:
    user = [{"role": "user", "content": "A point, please."}]
    for seed in range(5):
        generation = scheduler.chat(
            user, response_format=response_format, seed=seed, temperature=1, max_tokens=400
        )
        pieces = "".join(generation)
        done = generation.result()
        assert done.message == {"role": "assistant", "content": done.text}
        assert pieces == done.text
        if done.finish_reason == "stop":
            value = done.parsed if isinstance(done.parsed, Point) else Point(**done.parsed)
            assert value == Point.model_validate_json(done.message["content"])


def test_json_object(scheduler: pronk.InferenceScheduler) -> None:
    user = [{"role": "user", "content": "Anything."}]
    done = scheduler.chat(
        user, response_format={"type": "json_object"}, seed=3, temperature=1, max_tokens=1000
    ).result()
    if done.finish_reason == "stop":
        assert isinstance(done.parsed, dict)
    free = scheduler.chat(user, response_format={"type": "text"}, max_tokens=4).result()
    assert free.parsed is None


def test_schema_beside_tools(scheduler: pronk.InferenceScheduler) -> None:
    user = [{"role": "user", "content": "Hi"}]
    tools = [{"type": "function", "function": {"name": "now"}}]
    with pytest.raises(pronk.InvalidArgumentError, match="tool_choice='none'"):
        scheduler.chat(user, tools=tools, json_schema={})
    with pytest.raises(pronk.InvalidArgumentError, match="beside tools"):
        scheduler.chat(user, tools=tools, grammar='root ::= "a"')


# By default few, as each takes seconds on a slow machine: PRONK_TEST_SCHEMAS=200 for more.
N_SCHEMAS = int(os.environ.get("PRONK_TEST_SCHEMAS", "30"))


def test_random_schemas_on_the_default_model() -> None:
    default_engine = pronk.InferenceEngine.load(pronk.default_model())
    seed = int(os.environ.get("PRONK_TEST_SEED", random.randrange(1 << 32)))
    print(f"PRONK_TEST_SEED={seed} PRONK_TEST_SCHEMAS={N_SCHEMAS}")
    rng = random.Random(seed)
    with pronk.InferenceScheduler(4, engine=default_engine, n_ctx=512) as scheduler:
        schemas: list[dict[str, Any]] = []
        running: list[pronk.Generation] = []
        while len(schemas) < N_SCHEMAS:
            schema = random_schemas.document(rng)
            try:
                generation = scheduler.generate(
                    "A value in JSON: ",
                    json_schema=schema,
                    temperature=1,
                    seed=rng.randrange(1 << 32),
                    max_tokens=200,
                )
            except pronk.GrammarError:  # see test_schemas.py
                continue
            schemas.append(schema)
            running.append(generation)
        n_whole = 0
        for schema, generation in zip(schemas, running, strict=True):
            done = generation.result()
            if done.finish_reason == "length":
                continue
            n_whole += 1
            assert done.finish_reason == "stop"
            jsonschema.validate(done.parsed, schema)
    print(f"{n_whole} of {N_SCHEMAS} whole, the others cut at 200 tokens")
    assert n_whole > N_SCHEMAS // 3


def doubling(n: int) -> str:
    rules = [f"r{i} ::= r{i + 1} r{i + 1}" for i in range(n)]
    return "\n".join([*rules, f'r{n} ::= "a"?', "root ::= r0"])


@pytest.mark.parametrize(
    "grammar",
    [doubling(60), doubling(8), 'root ::= (("a"?){40}){40}', 'root ::= ("a"? "b"?){20} "c"'],
)
def test_many_ways_to_leave_parts_out_are_refused(
    scheduler: pronk.InferenceScheduler, grammar: str
) -> None:
    # Following such a grammar takes time and memory with a power of their number.
    with pytest.raises(pronk.GrammarError, match="left out"):
        scheduler.generate("x", grammar=grammar)


def test_many_parts_of_a_schema(scheduler: pronk.InferenceScheduler) -> None:
    names = [f"p{i}" for i in range(200)]
    values = {"enum": [f"value {i}" for i in range(500)]}
    for schema in (
        {"type": "string", "pattern": "^(a*b*c*d*){50}$"},
        {"type": "object", "properties": {name: {"type": "null"} for name in names}},
        {"type": "object", "properties": {"a": values}, "required": ["a"]},
        {"type": "array", "items": {"anyOf": [{"const": i} for i in range(200)]}},
    ):
        done = scheduler.generate("x", json_schema=schema, max_tokens=30, seed=1).result(60)
        if done.finish_reason == "stop":
            jsonschema.validate(done.parsed, schema)


def test_optional_parts_up_to_the_limit(scheduler: pronk.InferenceScheduler) -> None:
    for grammar in (doubling(5), 'root ::= ("a"?){30} "c"', "root ::= [a-z]{0,2000}"):
        done = scheduler.generate("x", grammar=grammar, max_tokens=4).result(60)
        assert done.finish_reason in {"stop", "length"}


@pytest.mark.parametrize("grammar", ['root ::= "yes" | "no"', 'root ::= "a"*'])
def test_a_grammar_for_the_answer_to_a_chat(
    scheduler: pronk.InferenceScheduler, grammar: str
) -> None:
    messages = [{"role": "user", "content": "Is it?"}]
    done = scheduler.chat(messages, grammar=grammar, max_tokens=8, seed=1).result(60)
    assert done.message is not None
    assert re.fullmatch("yes|no|a*", done.message["content"] or "")


@pytest.mark.parametrize("schema", [{}, True])
def test_any_json_in_a_chat(scheduler: pronk.InferenceScheduler, schema: object) -> None:
    messages = [{"role": "user", "content": "Say something"}]
    done = scheduler.chat(messages, json_schema=schema, max_tokens=8, seed=1).result(60)
    assert done.finish_reason in {"stop", "length"}


def test_a_token_too_long_to_follow_is_not_allowed() -> None:
    # llama.cpp follows its text by one call per character: this one would take the stack.
    words = ["a" * 100_000, "b" * 512, "é" * 513]
    model = ScriptedModel(pieces=[*(bytes([byte]) for byte in range(256)), *words])
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=256) as scheduler:
        for allowed, bias in ((False, 256), (True, 257), (False, 258)):
            done = scheduler.generate(
                "Q", grammar='root ::= [abé]{1,600} "!"', logit_bias={bias: 100.0}, max_tokens=3
            ).result(60)
            assert (bias in done.tokens) == allowed


@pytest.mark.parametrize(
    "grammar",
    [
        # Each character leaves hundreds of times as many ways open.
        "root ::= e\ne ::= " + " | ".join(['"a"', *(f'"a" e "{i}"' for i in range(500))]),
        # So does each of a token that fits nowhere.
        'root ::= e\ne ::= "a" | "a" e "b"? | "a" e "c"? | "a" e "d"?',
    ],
)
def test_ways_through_a_grammar_are_counted(grammar: str) -> None:
    # Each way was tried, one after the other, for minutes on end; other generations went on.
    pieces = [*(bytes([byte]) for byte in range(256)), "a" * 40, "a" * 40 + "!"]
    model = ScriptedModel(pieces=pieces)
    with pronk.InferenceScheduler(2, engine=model.engine, n_ctx=256) as scheduler:
        bad = scheduler.generate("Q", grammar=grammar, logit_bias={ord("a"): 50.0, 257: 60.0})
        other = scheduler.generate("Other", temperature=0, max_tokens=30)
        with pytest.raises(pronk.GrammarError, match="ambiguous"):
            bad.result(60)
        assert other.result(60).text == model.expected_text("Other", 30)
