"""The least time of a step, from what it has to read and to do and what the machine can."""

from __future__ import annotations

from benchmarks.record import Sample


def limit(step: Sample, machine: Sample) -> float:
    """The least seconds of a step, were nothing but memory or arithmetic in its way."""
    return max(reading(step, machine), computing(step, machine))


def reading(step: Sample, machine: Sample) -> float:
    """Seconds to read the bytes of a step."""
    return step["bytes"] / 1e3 / machine["read"]


def computing(step: Sample, machine: Sample) -> float:
    """Seconds to do the operations of a step."""
    return step["operations"] / machine["prefill"]
