"""What a run of the benchmarks was asked to do."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pronk import InferenceEngine

PROJECT = Path(__file__).resolve().parent.parent


@dataclass
class Settings:
    """Passed to every workload."""

    rounds: int = 5
    quick: bool = False
    """Sizes that only show that a workload runs: the figures mean nothing."""
    pool: Mapping[str, Any] = field(default_factory=dict)
    """Options of init_pool that differ from pronk's defaults."""
    peers: bool = True
    """Build and run llama.cpp's own programs and other packages."""
    openmp: bool = True
    """Whether llama.cpp's own programs use OpenMP, which is llama.cpp's default."""
    model: Path | None = None
    """None is pronk's default model."""
    say: Callable[[str], None] = print
    """Shows a line of progress."""

    @cached_property
    def engine(self) -> InferenceEngine:
        """The model, loaded at its first use."""
        import pronk

        return pronk.InferenceEngine.load(self.model_path)

    @cached_property
    def model_path(self) -> Path:
        import pronk

        return self.model or Path(pronk.default_model())

    @property
    def n_threads(self) -> int:
        """Compute threads, of every side."""
        return int(self.pool.get("n_threads") or usable_cpus())

    def as_json(self) -> dict[str, Any]:
        return {
            "rounds": self.rounds,
            "quick": self.quick,
            "pool": dict(self.pool),
            "openmp_of_peers": self.openmp,
            "n_threads": self.n_threads,
        }


def usable_cpus() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
