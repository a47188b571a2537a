"""Everything that a few clients can do to the gate, in every order."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest
from gate_model import WrongError, search

KINDS = ("block", "task", "try", "queued")
TWO = sorted(combinations_with_replacement(KINDS, 2))
THREE = sorted(combinations_with_replacement(KINDS, 3))


@pytest.mark.parametrize("permits", [1, 2])
@pytest.mark.parametrize("kinds", THREE, ids="-".join)
def test_nothing_goes_wrong(kinds: tuple[str, ...], permits: int) -> None:
    assert search(kinds, permits) > 10


@pytest.mark.parametrize("permits", [1, 2])
@pytest.mark.parametrize("kinds", TWO, ids="-".join)
def test_nothing_goes_wrong_with_a_close(kinds: tuple[str, ...], permits: int) -> None:
    assert search((*kinds, "close"), permits) > 10


@pytest.mark.parametrize("kinds", [("block", "block", "block"), ("queued", "task", "block")])
def test_nobody_is_stuck_without_timeouts(kinds: tuple[str, ...]) -> None:
    assert search(kinds, 1, timeouts=False) > 10
    assert search((*kinds, "close"), 1, timeouts=False) > 10


def test_four_clients() -> None:
    assert search(("block", "task", "task", "queued"), 2) > 1000


def test_two_closers() -> None:
    assert search(("block", "queued", "close", "close"), 1) > 1000


@pytest.mark.parametrize(
    ("broken", "kinds"),
    [
        ("last in first out", ("task", "task", "task")),
        ("release wakes nobody", ("task", "task", "task")),
        ("cancel keeps a grant", ("task", "task")),
        ("looks and sleeps in two steps", ("block", "block")),
        ("barges in", ("task", "task", "try")),
        ("stop swallows", ("queued", "close")),
        ("ends twice", ("queued", "close")),
    ],
)
def test_a_broken_gate_is_noticed(broken: str, kinds: tuple[str, ...]) -> None:
    with pytest.raises(WrongError):
        search(kinds, 1, broken=broken, timeouts=False)
