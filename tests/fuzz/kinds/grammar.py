"""Grammars in GBNF: made by rules, and by changing ones that are good."""

from __future__ import annotations

import random
from pathlib import Path

from fuzz import corpus, mutate
from fuzz.world import World, finish

WORDS = [
    *("root", "::=", "::= ", " ::= ", '"', "[", "]", "(", ")", "|", "*", "+", "?", "{", "}", "."),
    *("{2}", "{0,3}", "{1,}", "{,2}", "{0}", "{2000}", "{99999}", "{3,1}", "[^", "[a-z]", "[^\\n]"),
    *('"a"', '"\\x00"', '"\\u0041"', '"\\U0010FFFF"', '"\\uD800"', '"\\n"', "\\", "\\]", "-", "#"),
    *(
        "<[0]>",
        "<[97]>",
        "!<[97]>",
        "<[258]>",
        "<[999999]>",
        "<bos>",
        "<eos>",
        "!<eos>",
        "<x>",
        "!",
    ),
    *("\n", "\n\n", "\r", "\t", "root2", "a-b", "_", "root ::= root", "x ::= x", "\0", "é", "漢"),
]
NAMES = ["root", "a", "b", "c", "item", "x-1"]


class Grammar:
    def __init__(self) -> None:
        self.world = World()
        self.texts = corpus.grammars()

    def make(self, rng: random.Random) -> bytes:
        if rng.random() < 0.5:
            source = rules(rng)
            if rng.random() < 0.5:
                source = mutate.text(rng, source, WORDS)
        else:
            source = mutate.text(rng, rng.choice(self.texts), WORDS, self.texts)
        return source.encode()

    def run(self, data: bytes) -> None:
        options = {"seed": len(data), "temperature": 1.5, "max_tokens": 24}
        finish(self.world.scheduler.generate("Q", grammar=data.decode(), **options))

    def settle(self) -> None:
        self.world.settle()


def rules(rng: random.Random) -> str:
    names = ["root", *rng.sample(NAMES[1:], rng.randrange(len(NAMES)))]
    lines = [f"{name} ::= {alternatives(rng, names, rng.randrange(4))}" for name in names]
    if rng.random() < 0.3:
        rng.shuffle(lines)
    return "\n".join(lines) + rng.choice(["", "\n"])


def alternatives(rng: random.Random, names: list[str], depth: int) -> str:
    return " | ".join(sequence(rng, names, depth) for _ in range(rng.choice([1, 1, 2, 3])))


def sequence(rng: random.Random, names: list[str], depth: int) -> str:
    return " ".join(item(rng, names, depth) for _ in range(rng.randrange(1, 4)))


def item(rng: random.Random, names: list[str], depth: int) -> str:
    kind = rng.randrange(8)
    if kind == 0 and depth > 0:
        made = f"({alternatives(rng, names, depth - 1)})"
    elif kind == 1:
        made = rng.choice(names)
    elif kind == 2:
        first, last = sorted(rng.choices("abcmxyz09-é漢", k=2))
        made = f"[{rng.choice(['', '^'])}{first}-{last}{rng.choice(['', '_', '.', 'A-Z'])}]"
    elif kind == 3:
        made = "."
    elif kind == 4:
        made = rng.choice(["<[97]>", "!<[98]>", "<bos>", "<eos>", "!<[0]>"])
    else:
        made = '"' + "".join(rng.choices("abcxyz01 {}é漢🙂", k=rng.randrange(5))) + '"'
    counts = ["", "", "", "*", "+", "?", "{2}", "{0,3}", "{1,}", "{40}"]
    return made + rng.choice(counts)


def make_kind(scratch: Path) -> Grammar:
    del scratch
    return Grammar()
