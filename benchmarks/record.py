"""What a benchmark leaves behind: samples, the figures drawn from them, and their JSON.

Absolute numbers on a shared machine mean little, so a figure is either a ratio of two runs of
the same round, or a ratio of two quantities of the same run. It has a value per round, hence a
spread.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

SCHEMA = 1

Sample = Mapping[str, float]
"""What one run of one side measured, by key of the metric."""


@dataclass(frozen=True)
class Metric:
    """A quantity that every side of a case measures."""

    key: str
    label: str
    unit: str
    better: Literal["higher", "lower"]


@dataclass(frozen=True)
class Goal:
    """What the median of a figure is to be."""

    sense: Literal["at least", "at most"]
    bound: float

    def met_by(self, value: float) -> bool:
        return value >= self.bound if self.sense == "at least" else value <= self.bound


def at_least(bound: float) -> Goal:
    return Goal("at least", bound)


def at_most(bound: float) -> Goal:
    return Goal("at most", bound)


@dataclass
class Figure:
    """One number with its spread: a value per round."""

    label: str
    values: list[float]
    unit: str = "x"
    goal: Goal | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without one."""
        return None if self.goal is None else self.goal.met_by(self.median)

    def as_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "unit": self.unit,
            "values": self.values,
            "min": min(self.values),
            "median": self.median,
            "max": max(self.values),
            "goal": None if self.goal is None else asdict(self.goal),
            "met": self.met,
        }


@dataclass
class Case:
    """Sides that did the same work in turns."""

    name: str
    metrics: Sequence[Metric]
    samples: dict[str, list[Sample]]
    """By side, one sample per round. The first side is ours."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)

    @property
    def ours(self) -> str:
        return next(iter(self.samples))

    def series(self, side: str, key: str) -> list[float]:
        """The values of one metric, a value per round."""
        return [sample[key] for sample in self.samples[side]]

    def compare(
        self, against: str, key: str, goal: Goal | None = None, ours: str | None = None
    ) -> None:
        """Add how many times better our side did than another, round by round; 2 is twice as good.

        A higher number is better whatever the metric: for times it is theirs over ours.
        """
        metric = next(metric for metric in self.metrics if metric.key == key)
        mine = self.series(ours or self.ours, key)
        theirs = self.series(against, key)
        pairs = zip(mine, theirs, strict=True)
        values = [a / b if metric.better == "higher" else b / a for a, b in pairs]
        self.figures.append(Figure(f"{metric.label}, against {against}", values, goal=goal))

    def derive(
        self,
        label: str,
        of: Callable[[Sample], float],
        *,
        side: str | None = None,
        unit: str = "x",
        goal: Goal | None = None,
    ) -> None:
        """Add a figure that is a function of each run of one side, ours by default."""
        values = [of(sample) for sample in self.samples[side or self.ours]]
        self.figures.append(Figure(label, values, unit=unit, goal=goal))

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "parameters": dict(self.parameters),
            "metrics": [asdict(metric) for metric in self.metrics],
            "samples": {side: [dict(s) for s in samples] for side, samples in self.samples.items()},
            "figures": [figure.as_json() for figure in self.figures],
        }


@dataclass
class Result:
    """All cases of one workload."""

    workload: str
    title: str
    cases: list[Case] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """What was left out, each with the reason."""
    notes: list[str] = field(default_factory=list)
    """What a reader has to know to read the figures."""

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "workload": self.workload,
            "title": self.title,
            "cases": [case.as_json() for case in self.cases],
            "skipped": self.skipped,
            "notes": self.notes,
        }


def quantile(values: Sequence[float], q: float) -> float:
    """The smallest value that at least the fraction ``q`` of all values does not exceed."""
    ordered = sorted(values)
    rank = -int(-q * len(ordered) // 1)  # rounded up
    return ordered[min(max(rank, 1), len(ordered)) - 1]
