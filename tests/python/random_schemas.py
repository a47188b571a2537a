"""Random JSON schemas of what grammars can express, and a model's answers to them."""

from __future__ import annotations

import random
from typing import Any

WORDS = ["id", "name", "size", "colour", "tags", "point", "note", "größe", 'quo"te', "a b", "日本"]


def scalar(rng: random.Random) -> dict[str, Any]:
    """Return a schema of a value without parts."""
    kind = rng.randrange(9)
    if kind == 0:
        return {"type": "boolean"}
    if kind == 1:
        return {"type": "null"}
    if kind == 2:
        return {"type": "number"}
    if kind == 3:
        low = rng.randint(-1000, 1000)
        bounds = {"minimum": low, "maximum": low + rng.choice([0, 1, 9, 120, 5000])}
        chosen = rng.sample(sorted(bounds), rng.randrange(3))
        return {"type": "integer", **{key: bounds[key] for key in chosen}}
    if kind == 4:
        least = rng.randrange(4)
        return {"type": "string", "minLength": least, "maxLength": least + rng.randrange(12)}
    if kind == 5:
        return {"enum": rng.sample([1, -2.5, "x", "two words", None, True, "é\n"], 3)}
    if kind == 6:
        return {"const": rng.choice(["fixed", 7, None, [1, "a"], {"k": False}])}
    if kind == 7:
        pattern = rng.choice(["^[a-c]{2,4}$", "^x-[0-9]+$", "^(on|off)$"])
        return {"type": "string", "pattern": pattern}
    return {"type": "string", "format": rng.choice(["date", "time", "date-time", "uuid"])}


def schema(rng: random.Random, depth: int = 3) -> dict[str, Any]:
    """Return a schema that is nested at most ``depth`` deep."""
    if depth == 0:
        return scalar(rng)
    kind = rng.randrange(6)
    if kind <= 2:
        names = rng.sample(WORDS, rng.randint(1, 5))
        made: dict[str, Any] = {
            "type": "object",
            "properties": {name: schema(rng, depth - 1) for name in names},
            "required": rng.sample(names, rng.randint(0, len(names))),
            "additionalProperties": False,
        }
        return made
    if kind == 3:
        least = rng.randrange(3)
        return {
            "type": "array",
            "items": schema(rng, depth - 1),
            "minItems": least,
            "maxItems": least + rng.randrange(3),
        }
    if kind == 4:
        return {"anyOf": [schema(rng, depth - 1) for _ in range(rng.randint(2, 3))]}
    return scalar(rng)


def document(rng: random.Random) -> dict[str, Any]:
    """Return a schema as a whole: sometimes with definitions, one of which holds itself."""
    made = schema(rng)
    if made.get("type") == "object" and rng.randrange(3) == 0:
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
        made["required"] = [*made["required"], "list"]
    return made
