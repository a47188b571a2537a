"""Rich consoles for the two output streams."""

from __future__ import annotations

from typing import NoReturn

from rich.console import Console


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        # Rich would exit by itself; `reporting` decides how a command ends.
        raise BrokenPipeError


def stdout_console() -> Console:
    """Return a console for results."""
    return _Console(highlight=False)


def stderr_console() -> Console:
    """Return a console for everything that is not a result."""
    return _Console(stderr=True, highlight=False)
