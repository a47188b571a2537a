"""Random JSON schemas of what grammars can express, and a model's answers to them."""

from __future__ import annotations

import random
from typing import Any

WORDS = ["id", "name", "size", "colour", "tags", "point", "note", "größe", 'quo"te', "a b", "日本"]


ATOMS = ["a", "b-", '"', r"\\", "é", "日", r"\/", r"\n", r"\u00e9", ".", r"\d", r"\w", r"\s"]
ATOMS += [r"\D", r"\W", r"\S", "[a-c]", '[^a-c"]', r"[\w.-]", r"[^\s]", "[!-~]", "[à-ü]"]
ATOMS += ["(?:x|yz)"]
QUANTIFIERS = ["", "", "", "?", "*", "+", "{2}", "{1,3}", "{2,}", "*?"]


def pattern(rng: random.Random, depth: int = 2) -> str:
    """Return a regular expression that some text matches."""

    def part(depth: int) -> str:
        if depth == 0 or rng.randrange(3) > 0:
            atom = rng.choice(ATOMS)
            plain = len(atom) > 1 and atom[0] not in "[(\\"
            return (f"(?:{atom})" if plain else atom) + rng.choice(QUANTIFIERS)
        ways = [sequence(depth - 1) for _ in range(rng.randint(1, 3))]
        # More repetitions of repetitions take Python's matcher for ever.
        return f"({'|'.join(ways)})" + rng.choice(["", "?", "{2}"])

    def sequence(depth: int) -> str:
        return "".join(part(depth) for _ in range(rng.randint(1, 3)))

    return rng.choice(["^", "^", "^", ""]) + f"(?:{sequence(depth)})" + rng.choice(["$", "$", ""])


def bounds(rng: random.Random, low: float, high: float) -> dict[str, Any]:
    """Return none, one or both bounds of numbers, each with the number itself or without it."""
    made: dict[str, Any] = {}
    if rng.randrange(3) > 0:
        made[rng.choice(["minimum", "exclusiveMinimum"])] = low
    if rng.randrange(3) > 0:
        made[rng.choice(["maximum", "exclusiveMaximum"])] = high
    return made


def number(rng: random.Random) -> dict[str, Any]:
    """Return a schema of numbers."""
    size = 10 ** rng.randrange(1, 18)
    low = rng.randint(-size, size)
    high = low + rng.randint(3, size + 3)
    if rng.randrange(2) == 0:
        made = {"type": "integer", **bounds(rng, low, high)}
        if rng.randrange(4) == 0:
            made = {"type": "integer", "multipleOf": rng.choice([2, 7, 10, 100, 5000])}
        return made
    scale = 10.0 ** rng.randrange(0, 6)
    return {"type": "number", **bounds(rng, low / scale, high / scale)}


def text(rng: random.Random) -> dict[str, Any]:
    """Return a schema of strings."""
    made: dict[str, Any] = {"type": "string"}
    if rng.randrange(3) > 0:
        made["pattern"] = pattern(rng)
        if rng.randrange(4) == 0:
            made["maxLength"] = rng.randint(40, 300)
        return made
    made["minLength"] = rng.randrange(4)
    made["maxLength"] = made["minLength"] + rng.choice([0, 3, 12, 100])
    return made


def scalar(rng: random.Random) -> dict[str, Any]:
    """Return a schema of a value without parts."""
    kind = rng.randrange(9)
    if kind == 0:
        return {"type": rng.choice(["boolean", "null", "number", "integer", "string"])}
    if kind <= 2:
        return number(rng)
    if kind <= 5:
        return text(rng)
    if kind == 6:
        values = rng.sample([1, -2.5, "x", "two words", None, True, "é\n", [], {"a": 1}], 4)
        typed = {"type": ["string", "number", "array"]} if rng.randrange(2) == 0 else {}
        return {"enum": [*values, "kept"], **typed}
    if kind == 7:
        return {"const": rng.choice(["fixed", 7, None, [1, "a"], {"k": False}])}
    formats = ["date", "time", "date-time", "uuid", "uuid4", "duration", "ipv4", "binary"]
    return {"type": "string", "format": rng.choice(formats)}


def members(rng: random.Random, depth: int) -> dict[str, Any]:
    """Return a schema of objects."""
    names = rng.sample(WORDS, rng.randint(1, 5))
    made: dict[str, Any] = {
        "type": "object",
        "properties": {name: schema(rng, depth - 1) for name in names},
        "required": rng.sample(names, rng.randint(0, len(names))),
    }
    kind = rng.randrange(6)
    if kind == 0:
        made["additionalProperties"] = schema(rng, depth - 1)
    elif kind == 1:
        made["patternProperties"] = {"^x-": schema(rng, depth - 1), "_$": schema(rng, 0)}
    elif kind == 2:
        made["propertyNames"] = {"pattern": "^[^0-9]+$", "maxLength": 8}
        made["additionalProperties"] = True
        made["required"].append("absent")
    elif kind == 3:
        made = {"type": "object", "additionalProperties": schema(rng, depth - 1)}
    else:
        made["additionalProperties"] = False
    return made


def items(rng: random.Random, depth: int) -> dict[str, Any]:
    """Return a schema of arrays."""
    least = rng.randrange(3)
    made: dict[str, Any] = {"type": "array", "minItems": least}
    made["maxItems"] = least + rng.randrange(3)
    if rng.randrange(3) == 0:
        made["prefixItems"] = [schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]
        made["items"] = rng.choice([False, True, {"type": "integer"}])
        if made["items"] is False:
            made["minItems"] = min(least, len(made["prefixItems"]))
    else:
        made["items"] = schema(rng, depth - 1)
    return made


def combined(rng: random.Random, depth: int) -> dict[str, Any]:
    """Return a schema that several others are part of."""
    kind = rng.randrange(4)
    if kind == 0:
        return {"anyOf": [schema(rng, depth - 1) for _ in range(rng.randint(2, 3))]}
    if kind == 1:
        both = {"type": "string", "maxLength": 60}
        return {"allOf": [{"pattern": pattern(rng)}, both], "title": "Both"}
    if kind == 2:
        return {"allOf": [members(rng, depth)], "type": "object"}
    common = {"type": "object", "properties": {"id": scalar(rng)}, "required": ["id"]}
    ways = [{"properties": {"kind": {"const": kind}}, "required": ["kind"]} for kind in "ab"]
    return {**common, "oneOf": ways}


def schema(rng: random.Random, depth: int = 3) -> dict[str, Any]:
    """Return a schema that is nested at most ``depth`` deep."""
    if depth == 0:
        return scalar(rng)
    kind = rng.randrange(6)
    if kind <= 2:
        return members(rng, depth)
    if kind == 3:
        return items(rng, depth)
    if kind == 4:
        return combined(rng, depth)
    return scalar(rng)


def document(rng: random.Random) -> dict[str, Any]:
    """Return a schema as a whole: sometimes with definitions, one of which holds itself."""
    made = schema(rng)
    if "properties" in made and rng.randrange(3) == 0:
        made["$defs"] = {
            "node": {
                "type": "object",
                "properties": {
                    "value": scalar(rng),
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["value", "next"],
                "additionalProperties": False,
            }
        }
        made["properties"]["list"] = {"$ref": "#/$defs/node"}
        made["required"] = [*made.get("required", ()), "list"]
    return made
