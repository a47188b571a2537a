"""Runs the sides of a case in turns, so that what the machine does meanwhile hits them alike."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping

from benchmarks.record import Sample
from benchmarks.settings import Settings

Run = Callable[[], Sample]


def alternate(
    settings: Settings, label: str, sides: Mapping[str, Run], *, rounds: int | None = None
) -> dict[str, list[Sample]]:
    """Run every side once per round. Returns the samples by side, in the order of ``sides``.

    A round runs A B C, the next one C B A: so neighbours are compared with neighbours, and a
    machine that gets slower all the time favours nobody.
    """
    samples: dict[str, list[Sample]] = {side: [] for side in sides}
    total = settings.rounds if rounds is None else rounds
    for index in range(total):
        order = list(sides) if index % 2 == 0 else list(sides)[::-1]
        for side in order:
            settings.say(f"{label}: round {index + 1} of {total}, {side}")
            gc.collect()
            samples[side].append(sides[side]())
    return samples
