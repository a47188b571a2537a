"""The demo's own count of agents that hold a permit, to compare with the scheduler's."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


class Gauge:
    """Counts the threads inside its ``with`` block, and the most there ever were."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._inside = 0  # guarded by _mutex
        self._peak = 0  # guarded by _mutex

    @property
    def peak(self) -> int:
        """The most threads that were ever inside at once."""
        with self._mutex:
            return self._peak

    def __enter__(self) -> Self:
        with self._mutex:
            self._inside += 1
            self._peak = max(self._peak, self._inside)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._mutex:
            self._inside -= 1
