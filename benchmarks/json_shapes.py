"""Shapes of JSON texts, each as a JSON schema and as a grammar.

The grammars of a schema differ between the sides of a comparison: in white space, in the order of
members. One text for all leaves nothing to differ. It admits what `json.dumps` makes, and of that
only texts of about one length, so that no side has more to write than another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class Shape(Protocol):
    def schema(self) -> dict[str, Any]: ...

    def gbnf(self) -> str:
        """The right side of a rule."""
        ...


@dataclass(frozen=True)
class Choice:
    """One of some strings."""

    values: tuple[str, ...]

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.values)}

    def gbnf(self) -> str:
        return f"({' | '.join(_literal(json.dumps(value)) for value in self.values)})"


@dataclass(frozen=True)
class Number:
    """A whole number of so many digits."""

    digits: int

    def schema(self) -> dict[str, Any]:
        low = 10 ** (self.digits - 1)
        return {"type": "integer", "minimum": low, "maximum": 10 * low - 1}

    def gbnf(self) -> str:
        return f"[1-9] [0-9]{{{self.digits - 1}}}" if self.digits > 1 else "[1-9]"


@dataclass(frozen=True)
class Words:
    """Text of small letters and spaces, of so many characters."""

    length: int

    def schema(self) -> dict[str, Any]:
        # Not minLength: llama.cpp's converter ignores it beside a pattern.
        return {"type": "string", "pattern": f"^[a-z ]{{{self.length}}}$"}

    def gbnf(self) -> str:
        quote = _literal('"')
        return f"{quote} [a-z ]{{{self.length}}} {quote}"


@dataclass(frozen=True)
class Items:
    """A list of so many items."""

    item: Shape
    n: int

    def schema(self) -> dict[str, Any]:
        return {
            "type": "array",
            "items": self.item.schema(),
            "minItems": self.n,
            "maxItems": self.n,
        }

    def gbnf(self) -> str:
        comma = f" {_literal(', ')} "
        return f"{_literal('[')} {comma.join([self.item.gbnf()] * self.n)} {_literal(']')}"


@dataclass(frozen=True)
class Record:
    """An object with these members, all of them, in this order."""

    members: Mapping[str, Shape]

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {key: shape.schema() for key, shape in self.members.items()},
            "required": list(self.members),
            "additionalProperties": False,
        }

    def gbnf(self) -> str:
        parts = []
        for index, (key, shape) in enumerate(self.members.items()):
            before = "{" if index == 0 else ", "
            parts += [_literal(f"{before}{json.dumps(key)}: "), shape.gbnf()]
        return " ".join([*parts, _literal("}")])


def grammar(shape: Shape) -> str:
    """Return GBNF for all texts of a shape."""
    return f"root ::= {shape.gbnf()}"


def _literal(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
