"""Reads a trace of pronk: where the decode loop and the generations spent their time.

Times are seconds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pronk


@dataclass
class Step:
    """A round of the decode loop, and what of it went where."""

    begin: float
    seconds: float
    decode_tokens: int
    prompt_tokens: int
    batch: float = 0.0
    """Calls of llama.cpp."""
    sample: float = 0.0
    """Choosing tokens, turning them into text, handing it out."""
    after: float | None = None
    """From its end to the beginning of the next; None for the last."""

    @property
    def rest(self) -> float:
        return self.seconds - self.batch - self.sample


@dataclass
class Life:
    """A generation, from the call to its end."""

    prompt_tokens: int = 0
    queued: float = 0.0
    begin: float = 0.0
    end: float = 0.0
    prefilled: float = 0.0
    """When its last prompt chunk was done."""

    @property
    def prefill(self) -> float:
        return max(self.prefilled - self.begin, 0.0)

    @property
    def decode(self) -> float:
        return self.end - max(self.prefilled, self.begin)


@dataclass
class Timeline:
    steps: list[Step] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    """For permits."""


@contextmanager
def recorded(scheduler: pronk.InferenceScheduler) -> Iterator[Timeline]:
    """Record a trace; what is yielded is filled in at the end."""
    timeline = Timeline()
    with TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        scheduler.start_trace()
        try:
            yield timeline
        finally:
            scheduler.stop_trace(path)
        _read(json.loads(path.read_text(encoding="utf-8"))["traceEvents"], timeline)


def _read(events: list[dict[str, Any]], timeline: Timeline) -> None:
    lives: defaultdict[int, Life] = defaultdict(Life)
    opened: dict[tuple[str, str], float] = {}
    inner: list[tuple[float, str, float]] = []
    for event in events:
        name, kind, at = event["name"], event["ph"], event["ts"] / 1e6
        args = event.get("args", {})
        if kind == "X":
            seconds = event["dur"] / 1e6
            if name == "step":
                step = Step(at, seconds, args["decode_tokens"], args["prompt_tokens"])
                timeline.steps.append(step)
            elif name in ("batch", "sample"):
                inner.append((at, name, seconds))
            elif name == "prefill":
                life = lives[args["generation"]]
                life.prefilled = max(life.prefilled, at + seconds)
            elif name.startswith("generation"):
                life = lives[args["generation"]]
                life.begin, life.end = at, at + seconds
                life.prompt_tokens = args["prompt_tokens"]
        elif kind == "b":
            opened[name, str(event["id"])] = at
        elif kind == "e":
            seconds = at - opened.pop((name, str(event["id"])))
            if name == "queued":
                lives[int(event["id"])].queued = seconds
            elif name.startswith("wait"):
                timeline.waits.append(seconds)
    timeline.lives = [lives[number] for number in sorted(lives)]
    _fill(timeline.steps, inner)


def _fill(steps: list[Step], inner: list[tuple[float, str, float]]) -> None:
    steps.sort(key=lambda step: step.begin)
    for step, following in pairwise(steps):
        step.after = following.begin - step.begin - step.seconds
    index = 0
    for at, name, seconds in sorted(inner):
        while index + 1 < len(steps) and steps[index + 1].begin <= at:
            index += 1
        step = steps[index]
        # The last step may be missing: a reader can stop the recording before it is over.
        if step.begin <= at < step.begin + step.seconds:
            setattr(step, name, getattr(step, name) + seconds)
