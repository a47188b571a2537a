"""The scheduler that mutants are tried on, and the check that it is as good as before."""

from __future__ import annotations

import time
from typing import Any

import pronk
from pronk.testing import ScriptedModel

# Longer than anything here takes, shorter than the driver waits before it calls it a hang.
SECONDS = 40.0
CANARY_EVERY = 25


class BrokenError(AssertionError):
    """Something that the mutant had no part in went wrong after it."""


def finish(generation: pronk.Generation) -> pronk.Completion:
    try:
        return generation.result(SECONDS)
    except pronk.ResultTimeout:
        generation.cancel()
        raise BrokenError(f"a generation did not end within {SECONDS:.0f} s") from None


class World:
    """A scheduler over a scripted model, whose every answer is known."""

    def __init__(self, **options: Any) -> None:
        self.model = ScriptedModel()
        self.options = {"n_ctx": 4096, **options}
        self.scheduler = pronk.InferenceScheduler(2, engine=self.model.engine, **self.options)
        self._tried = 0

    def settle(self) -> None:
        """Check that nothing was lost, and now and then that a generation is what it should be."""
        deadline = time.monotonic() + SECONDS
        while self.scheduler.active_count or self.scheduler.waiting_count:
            if time.monotonic() > deadline:
                raise BrokenError(f"permits were lost: {self.scheduler.statistics()}")
            time.sleep(0.0005)
        self._tried += 1
        if self._tried % CANARY_EVERY == 0:
            self.canary()

    def canary(self) -> None:
        done = finish(self.scheduler.generate("canary", max_tokens=8, temperature=0))
        if done.text != self.model.expected_text("canary", 8):
            raise BrokenError(f"the canary said {done.text!r}")
        if self.model.violations:
            raise BrokenError(f"the backend was misused: {self.model.violations}")
        statistics = self.scheduler.statistics()
        if statistics.acquired != statistics.released or not statistics.healthy:
            raise BrokenError(f"the scheduler does not add up: {statistics}")
