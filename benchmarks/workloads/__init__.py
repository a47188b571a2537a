"""One module per workload; each has SUMMARY and run(settings)."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from benchmarks.record import Result
from benchmarks.settings import Settings


class Workload(Protocol):
    SUMMARY: str

    def run(self, settings: Settings) -> Result: ...


NAMES = (
    "gate",
    "scale",
    "width",
    "width_long",
    "agents",
    "agent_tools",
    "burst",
    "aging",
    "sampling",
    "limits",
)


def load(name: str) -> Workload:
    """Import the module of a workload: each needs different packages."""
    return cast("Workload", import_module(f"benchmarks.workloads.{name}"))
