"""Times of streams as their reader sees them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.record import Metric, Sample, quantile

STREAM_METRICS = (
    Metric("first_median", "first token, median", "s", "lower"),
    Metric("first_worst", "first token, longest", "s", "lower"),
    Metric("gap_median", "gap, median", "s", "lower"),
    Metric("gap_p99", "gap, 99th percentile", "s", "lower"),
    Metric("gap_worst", "gap, longest", "s", "lower"),
)


@dataclass
class Watch:
    """The arrivals of one completion, as its reader sees them."""

    asked: float = field(default_factory=time.perf_counter)
    """Before the permit or the slot was waited for."""
    arrivals: list[float] = field(default_factory=list)

    def tick(self) -> None:
        self.arrivals.append(time.perf_counter())

    @property
    def first(self) -> float:
        """Seconds to the first piece."""
        return self.arrivals[0] - self.asked

    def gaps(self) -> list[float]:
        """Seconds between one piece and the next."""
        return [b - a for a, b in zip(self.arrivals, self.arrivals[1:], strict=False)]

    def gaps_during(self, begin: float, end: float) -> list[float]:
        """The gaps that overlap a span of time."""
        pairs = zip(self.arrivals, self.arrivals[1:], strict=False)
        return [b - a for a, b in pairs if b > begin and a < end]


def summary(watches: list[Watch]) -> Sample:
    """The values of STREAM_METRICS."""
    firsts = [watch.first for watch in watches]
    return {
        "first_median": quantile(firsts, 0.5),
        "first_worst": max(firsts),
        **gap_summary([gap for watch in watches for gap in watch.gaps()]),
    }


def gap_summary(gaps: list[float]) -> Sample:
    return {
        "gap_median": quantile(gaps, 0.5),
        "gap_p99": quantile(gaps, 0.99),
        "gap_worst": max(gaps),
    }


def random_tokens(seed: object, n_vocab: int) -> Callable[[int], list[int]]:
    """Return a source of ordinary token ids, the same for the same seed."""
    rng = random.Random(repr(seed))
    low = min(1000, n_vocab // 2)  # the ids before are control tokens and single bytes
    return lambda n: [rng.randrange(low, n_vocab) for _ in range(n)]
