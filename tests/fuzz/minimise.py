"""Makes the text of a finding shorter, as long as it ends in the same way."""

from __future__ import annotations

from pathlib import Path

from fuzz.driver import Outcome, child


def minimise(
    kind: str, path: Path, outcome: Outcome, hang_seconds: float, tries: int = 200
) -> Path:
    """Write a shorter mutant beside `path` and return its path.

    Leaves out ever smaller parts (delta debugging). Parts are bytes: where a mutant is JSON, what
    is no JSON any more ends otherwise and is put back.
    """
    data = path.read_bytes()
    shorter = path.with_suffix(".min")
    shorter.write_bytes(data)
    attempt = path.with_suffix(".try")

    with child(kind, 0, hang_seconds) as runner:

        def same(candidate: bytes) -> bool:
            attempt.write_bytes(candidate)
            got = runner.ask(file=str(attempt))
            return (got.what, got.error, got.place) == (outcome.what, outcome.error, outcome.place)

        part = max(1, len(data) // 2)
        while tries > 0:
            at = 0
            while at < len(data) and tries > 0:
                tries -= 1
                candidate = data[:at] + data[at + part :]
                if same(candidate):
                    data = candidate
                    shorter.write_bytes(data)
                else:
                    at += part
            if part == 1:
                break
            part = max(1, part // 2)
    attempt.unlink(missing_ok=True)
    return shorter
