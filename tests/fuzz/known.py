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


KNOWN: tuple[Known, ...] = (
    # Of the operations of a graph: those that a step computes, when it computes them.
    Known(
        "model",
        "died",
        r"ends the process: .*/ggml/src/ggml-cpu/[\w-]+\.c(pp)?:",
        "the numbers of a model do not fit its tensors in a way that shows in a step only: "
        "load(probe=True) tries one first",
    ),
)


def reason(kind: str, outcome: Outcome) -> str | None:
    """Say why a finding is a known limit, None where it is not."""
    for each in KNOWN:
        if (each.kind, each.what) == (kind, outcome.what) and re.search(
            each.place, f"{outcome.error} {outcome.place}"
        ):
            return each.reason
    return None
