"""JSON schemas: random good ones with parts changed, and with their text changed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import random_schemas

from fuzz import mutate
from fuzz.world import World, finish

WORDS = [
    *("type", "properties", "required", "additionalProperties", "items", "prefixItems", "minItems"),
    *("maxItems", "uniqueItems", "minLength", "maxLength", "pattern", "format", "enum", "const"),
    *("anyOf", "oneOf", "allOf", "not", "$ref", "$defs", "definitions", "minimum", "maximum"),
    *("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "title", "default", "nullable"),
    *("object", "array", "string", "integer", "number", "boolean", "null", "date-time", "uuid"),
    *("#/$defs/node", "#/$defs/a", "#", "#/properties/id", "https://example.org/x", "#/", "//"),
]
PATTERNS = [
    *(
        "^[a-c]{2,4}$",
        "^x-[0-9]+$",
        "^(on|off)$",
        "^$",
        "^",
        "$",
        "^(((a)))$",
        "^a{0}$",
        "^a{1,0}$",
    ),
    *("^[z-a]$", "^[^]$", "^[]$", "^\\d+\\w\\s$", "^\\p{L}$", "^(?=a)b$", "^(?:a|b)*$", "^a**$"),
    *("^(a*)*$", "^a{99999}$", "^a{2,}$", "^.*$", "^\\", "^(", "^)$", "^[a", "^a|$", '^"$', "^é+$"),
    *("^\\u0041$", "^[\\]]$", "^{}$", "^a{,3}$", "^(a{9}){9}$", "^\\x00$", "^$$", "^^"),
]


class Schema:
    def __init__(self) -> None:
        self.world = World()

    def make(self, rng: random.Random) -> bytes:
        value: Any = random_schemas.document(rng)
        if rng.random() < 0.9:
            value = mutate.json_value(rng, value, WORDS, part)
        source = json.dumps(value)
        if rng.random() < 0.15:
            source = mutate.text(rng, source, [*WORDS, *'{}[]",:'])
        return source.encode()

    def run(self, data: bytes) -> None:
        schema: Any = data.decode()
        if len(data) % 2 == 0:
            try:
                schema = json.loads(schema)
            except (ValueError, RecursionError):
                pass
            else:
                schema = schema if isinstance(schema, dict) else data.decode()
        options = {"seed": len(data), "temperature": 1.5, "max_tokens": 40}
        finish(self.world.scheduler.generate("Q", json_schema=schema, **options))

    def settle(self) -> None:
        self.world.settle()


def part(rng: random.Random) -> Any:
    """A part of a schema that is seldom seen in one."""
    kind = rng.randrange(12)
    if kind == 0:
        return {"type": "string", "pattern": rng.choice(PATTERNS)}
    if kind == 1:
        return {"$ref": rng.choice(["#", "#/$defs/node", "#/$defs/a", "#/x/y", "", "%", "#/$defs"])}
    if kind == 2:
        return {"type": rng.sample(["object", "array", "string", "null", "robot"], 2)}
    if kind == 3:
        return {"enum": [mutate.odd_json(rng) for _ in range(rng.randrange(4))]}
    if kind == 4:
        low, high = mutate.integer(rng), mutate.integer(rng)
        return {
            "type": "integer",
            rng.choice(["minimum", "exclusiveMinimum"]): low,
            "maximum": high,
        }
    if kind == 5:
        sizes = {"minLength": mutate.number(rng), "maxLength": mutate.number(rng)}
        return {"type": "string", **sizes}
    if kind == 6:
        sizes = {"minItems": mutate.number(rng), "maxItems": mutate.number(rng)}
        return {"type": "array", "items": {"type": "null"}, **sizes}
    if kind == 7:
        word = rng.choice(["anyOf", "oneOf", "allOf", "not"])
        return {word: [random_schemas.scalar(rng) for _ in range(rng.randrange(4))]}
    if kind == 8:
        return {"const": mutate.odd_json(rng)}
    if kind == 9:
        names = [f"p{index}" for index in range(rng.choice([20, 100, 256, 257]))]
        return {"properties": {name: {} for name in names}, "required": names[::2]}
    if kind == 10:
        return {"type": "array", "prefixItems": [{}, {"type": "null"}], "items": False}
    return {"type": "string", "format": mutate.odd_text(rng, WORDS)}


def make_kind(scratch: Path) -> Schema:
    del scratch
    return Schema()
