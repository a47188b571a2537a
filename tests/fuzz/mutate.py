"""Changes that know what numbers, texts and JSON values look like."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

INTEGERS = [
    *(0, 1, -1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 257),
    *(512, 1000, 1023, 1024, 4096, 2**15, 2**16 - 1, 2**16, 2**20, 2**24),
    *(2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**32, 2**53, 2**63 - 1, 2**63, -(2**63), 2**64 - 1),
]
FLOATS = [
    *(0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-10, 1e-5, 1.5, 100.0, 1e6, 1e38, -1e38, 1e300),
    *(math.inf, -math.inf, math.nan),
]
ODD_CHARACTERS = [
    *("\0", "\t", "\n", "\r", "\x1b", "\x7f", "\x85", "\xa0", "\xad", "é", "ß", "İ", "\u0131", "ǅ"),
    *("\u0300", "\u200b", "\u200d", "\u202e", "\u2028", "\ufdd0", "\ufe0f", "\ufeff", "\uffff"),
    *("日", "\u0e33", "한", "\U0001f600", "\U0001f1e9", "\U0010ffff", "▁", "Ġ", "\\", '"', "'"),
]
SURROGATES = ["\ud800", "\udc80", "\udfff"]


def integer(rng: random.Random, near: int | None = None) -> int:
    """An integer that is at the edge of something, or close to `near`."""
    if near is not None and rng.random() < 0.4:
        return rng.choice([near - 1, near + 1, near * 2, near // 2, near * 3, -near, near + 32])
    value = rng.choice(INTEGERS)
    return value + rng.choice([-1, 1]) if rng.random() < 0.2 else value


def number(rng: random.Random) -> int | float:
    return rng.choice(FLOATS) if rng.random() < 0.5 else integer(rng)


def pick_slice(rng: random.Random, length: int, longest: int = 40) -> slice:
    begin = rng.randrange(length + 1)
    return slice(begin, min(length, begin + rng.randrange(longest + 1)))


def odd_text(rng: random.Random, words: Sequence[str] = ()) -> str:
    """A text of what texts are seldom made of."""
    kind = rng.randrange(8)
    if kind == 0:
        return ""
    if kind == 1:
        return rng.choice(ODD_CHARACTERS) * rng.choice([1, 2, 17, 300])
    if kind == 2 and words:
        return "".join(rng.choices(words, k=rng.randrange(1, 8)))
    if kind == 3:
        return "".join(chr(rng.randrange(0x20, 0x7F)) for _ in range(rng.randrange(1, 60)))
    if kind == 4:
        return "".join(character(rng) for _ in range(rng.randrange(1, 40)))
    if kind == 5:
        return rng.choice(["a", " ", "x1", "日本", ". "]) * rng.choice([2, 40, 1000])
    if kind == 6:
        return rng.choice(["null", "true", "NaN", "1e999", "-0", "{}", "[]", '"', "%s%n", "../.."])
    return " ".join(odd_text(rng, words) for _ in range(2))


def character(rng: random.Random) -> str:
    """Any character but a lone surrogate."""
    if rng.random() < 0.3:
        return rng.choice(ODD_CHARACTERS)
    top = rng.choice([0x80, 0x800, 0x10000, 0x110000])
    code = rng.randrange(top)
    return "?" if 0xD800 <= code < 0xE000 else chr(code)


def text(rng: random.Random, source: str, words: Sequence[str], others: Sequence[str] = ()) -> str:
    """`source` with one to four changes; `words` are what it is made of, `others` are like it."""
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 4])):
        at = pick_slice(rng, len(source))
        kind = rng.randrange(9)
        if kind == 0:
            source = source[: at.start] + source[at.stop :]
        elif kind == 1:
            source = source[: at.stop] + source[at.start :]
        elif kind == 2:
            times = rng.choice([2, 3, 10, 100, 1000])
            again = source[at] * min(times, 1 + 20_000 // max(1, at.stop - at.start))
            source = source[: at.start] + again + source[at.stop :]
        elif kind == 3:
            source = source[: at.start] + source[at][::-1] + source[at.stop :]
        elif kind == 4 and words:
            source = source[: at.start] + rng.choice(words) + source[at.start :]
        elif kind == 5 and words:
            source = source[: at.start] + rng.choice(words) + source[at.stop :]
        elif kind == 6:
            source = source[: at.start] + odd_text(rng, words) + source[at.start :]
        elif kind == 7 and others:
            other = rng.choice(others)
            source = (
                source[: at.start] + other[pick_slice(rng, len(other), 200)] + source[at.stop :]
            )
        else:
            source = source[: rng.randrange(len(source) + 1)]
    return source


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all parts of a JSON value, itself first."""
    found = [path]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += places(inner, (*path, index))
    return found


def odd_json(rng: random.Random, words: Sequence[str] = ()) -> Any:
    kind = rng.randrange(9)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return integer(rng)
    if kind == 2:
        return rng.choice(FLOATS)
    if kind == 3:
        return [odd_json(rng, words) for _ in range(rng.randrange(3))]
    if kind == 4:
        return {odd_text(rng, words): odd_json(rng, words) for _ in range(rng.randrange(3))}
    if kind == 5:
        return rng.choice(SURROGATES) if rng.random() < 0.2 else odd_text(rng, words)
    if kind == 6:
        return nested(rng, rng.choice([10, 100, 127, 128, 129, 300]))
    if kind == 7 and words:
        return rng.choice(words)
    return rng.choice([[], {}, "", 0])


def nested(rng: random.Random, depth: int) -> Any:
    made: Any = rng.choice([None, 1, "x", {}, []])
    key = rng.choice(["a", "items", "properties", "content", "anyOf"])
    for _ in range(depth):
        made = [made] if rng.random() < 0.5 else {key: made}
    return made


def json_value(
    rng: random.Random,
    value: Any,
    words: Sequence[str],
    special: Callable[[random.Random], Any] | None = None,
) -> Any:
    """`value` with one to four changes; `special` makes parts that mean something there."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice([1, 1, 2, 2, 3, 4])):
        path = rng.choice(places(value))
        if not path:
            if rng.random() < 0.1:
                value = odd_json(rng, words)
            continue
        parent = value
        for step in path[:-1]:
            parent = parent[step]
        last = path[-1]
        kind = rng.randrange(8)
        if kind == 0:
            del parent[last]
        elif kind == 1:
            parent[last] = odd_json(rng, words)
        elif kind == 2 and special:
            parent[last] = special(rng)
        elif kind == 3 and isinstance(parent, dict):
            parent[rng.choice(words) if words else "x"] = parent.pop(last)
        elif kind == 4 and isinstance(parent, list):
            parent[last:last] = [copy.deepcopy(parent[last])] * rng.choice([1, 2, 30])
        elif kind == 5 and isinstance(parent, dict):
            made = special(rng) if special and rng.random() < 0.5 else odd_json(rng, words)
            parent[rng.choice(words) if words and rng.random() < 0.8 else odd_text(rng)] = made
        elif kind == 6:
            parent[last] = rng.choice([[parent[last]], {"x": parent[last]}])
        elif isinstance(parent[last], str):
            parent[last] = text(rng, parent[last], words)
        elif isinstance(parent[last], (int, float)) and not isinstance(parent[last], bool):
            parent[last] = number(rng)
        else:
            parent[last] = odd_json(rng, words)
    return value
