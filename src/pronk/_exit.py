"""Ends what still runs when the interpreter exits, so that exits are quiet and quick."""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING
from weakref import WeakSet

from pronk import _core
from pronk._errors import Error

if TYPE_CHECKING:
    from pronk._core import InferenceScheduler

# Seconds for all schedulers together; a decode step that takes longer is left behind.
_EXIT_SECONDS = 1.5

_live: WeakSet[InferenceScheduler] = WeakSet()


def watch(scheduler: InferenceScheduler) -> None:
    """Close ``scheduler`` at exit, if it is still alive then."""
    _live.add(scheduler)


def _close_all() -> None:
    deadline = monotonic() + _EXIT_SECONDS
    for scheduler in list(_live):
        with suppress(Error):
            scheduler.close(timeout=max(0.0, deadline - monotonic()))
    # From here on a daemon thread that comes out of a wait of ours sleeps instead of entering an
    # interpreter that is going down.
    _core.begin_exit()
    if threading.active_count() > 1:
        # What daemon threads hold is never freed; nanobind would complain about it.
        _core.expect_leaks()


def _forget_parent() -> None:
    """Leave the schedulers of the parent alone, in a child."""
    _live.clear()
    # The parent's other threads do not exist here, but what they hold does, for ever.
    _core.expect_leaks()


atexit.register(_close_all)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)
