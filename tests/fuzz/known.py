"""Findings that are listed as limits in the README, each with its reason."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fuzz.driver import Outcome


class Known(NamedTuple):
    kind: str
    what: str
    place: str  # a regular expression, of the error and its place
    reason: str


_ASSERTS = (
    "the numbers of a model do not fit its tensors in a way that only llama.cpp's graph for that "
    "architecture knows: load(probe=True) tries it first"
)
KNOWN: tuple[Known, ...] = (
    # Of the graph of an architecture, and of the operations in it.
    Known("model", "died", r"ends the process: .*/src/models/[\w-]+\.cpp:", _ASSERTS),
    Known("model", "died", r"ends the process: .*/ggml/src/ggml(-cpu/[\w-]+)?\.c(pp)?:", _ASSERTS),
    # Hundreds of alternatives that come back to their own rule: llama.cpp compares every reading
    # of the text with every other before pronk can count them. Only that generation waits.
    Known(
        "grammar",
        "raised",
        r"a generation did not end within",
        "a rule of very many alternatives that come back to it takes time with a power of them",
    ),
    Known(
        "template",
        "died",
        r"^SIGSEGV",
        "a chat template is a program: a macro that calls itself without end takes the stack",
    ),
    # A model without heads, of an architecture that divides by their number.
    Known("model", "died", r"^SIGFPE", _ASSERTS),
)


def reason(kind: str, outcome: Outcome) -> str | None:
    """Say why a finding is a known limit, None where it is not."""
    for each in KNOWN:
        if (each.kind, each.what) == (kind, outcome.what) and re.search(
            each.place, f"{outcome.error} {outcome.place}"
        ):
            return each.reason
    return None
