"""Some thousand mutants of every kind, and a test that the fuzzer notices what it has to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fuzz import kinds
from fuzz.driver import Campaign, replay
from fuzz.kinds.misbehaviour import WAYS
from fuzz.minimise import minimise

# Three to six seconds each on two slow cores.
COUNTS = {
    "grammar": 3000,
    "schema": 3000,
    "template": 2500,
    "chat": 1000,
    "reply": 60,
    "prompt": 150,
    "params": 600,
    "model": 600,
    "starved": 15,
}


@pytest.mark.parametrize("kind", kinds.NAMES)
def test_no_mutant_takes_the_process_with_it(kind: str, tmp_path: Path) -> None:
    # The same in every run, so that a change is to blame for what is new: `make fuzz` tries others.
    seed = int(os.environ.get("PRONK_TEST_SEED") or 1)
    print(f"PRONK_TEST_SEED={seed}")
    report = Campaign(kind, seed, COUNTS[kind], jobs=2, folder=tmp_path).run()
    assert report.tried == COUNTS[kind]
    assert not report.new, "\n".join(map(str, report.new))
    # Neither all nor none get through: else the mutants are too wild, or too tame.
    fine = {name.split()[0] for name in report.outcomes}
    assert {"accepted", "refused"} <= fine or kind in ("reply", "starved"), report.outcomes


def test_the_driver_notices(tmp_path: Path) -> None:
    report = Campaign(kinds.SELF_TEST, 1, 30, hang_seconds=3, folder=tmp_path).run()
    assert report.tried == 30
    found = {finding.outcome.what: finding for finding in report.new}
    assert set(found) == {"died", "raised", "hung", "memory"}
    assert found["died"].outcome.error == "SIGSEGV"
    assert {each.outcome.error for each in report.new if each.outcome.what == "raised"} == {
        "LookupError",
        "AssertionError",
    }
    for finding in report.new:
        assert finding.path is not None
        way = finding.path.read_text()
        assert way == (
            "unsettled" if finding.outcome.error == "AssertionError" else finding.outcome.what
        )
        assert finding.alone or way == "memory"  # what was in use once does not count again
    counted = sum(report.outcomes[name] for name in ("accepted", "refused InvalidArgumentError"))
    assert counted + sum(finding.times for finding in report.new) == 30
    assert len(WAYS) == 7


def test_a_finding_can_be_tried_again_and_made_shorter(tmp_path: Path) -> None:
    path = tmp_path / "mutant"
    path.write_bytes(b"died")
    outcome = replay(kinds.SELF_TEST, path, 20)
    assert (outcome.what, outcome.error) == ("died", "SIGSEGV")
    path.write_bytes(b"died")
    assert minimise(kinds.SELF_TEST, path, outcome, 20, tries=8).read_bytes() == b"died"


@pytest.mark.parametrize("kind", kinds.NAMES)
def test_a_number_is_always_the_same_mutant(kind: str, tmp_path: Path) -> None:
    import random

    first, second = (kinds.load(kind, tmp_path) for _ in range(2))
    made = [first.make(random.Random(f"{number}")) for number in range(20)]
    assert [second.make(random.Random(f"{number}")) for number in reversed(range(20))] == made[::-1]
    assert len(set(made)) > 10
