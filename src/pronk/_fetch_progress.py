"""What the user sees on standard error while a model is fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console
    from rich.progress import Progress, TaskID
    from typing_extensions import Self


class FetchProgress:
    """A bar on a terminal, one line per phase elsewhere, nothing when disabled.

    Args:
        enabled: Show anything at all.
    """

    def __init__(self, enabled: bool) -> None:
        self._console = _stderr() if enabled else None
        self._bar: Progress | None = None
        if self._console is not None and self._console.is_terminal:
            self._bar = _new_bar(self._console)
        self._phase: TaskID | None = None
        self._done = 0

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def start(self, text: str, total_bytes: int) -> None:
        """Begin a phase of ``total_bytes``; the phase before it is over."""
        if self._bar is None:
            self.note(f"{text} ({total_bytes / 1e6:.0f} MB)")
            return
        if self._phase is not None:
            self._bar.remove_task(self._phase)
        self._phase = self._bar.add_task(text, total=total_bytes)
        self._done = 0

    def update(self, done_bytes: int) -> None:
        """Show that ``done_bytes`` of the phase are done; a bar never moves back."""
        if self._bar is not None and self._phase is not None and done_bytes > self._done:
            self._done = done_bytes
            self._bar.update(self._phase, completed=done_bytes)

    def note(self, text: str) -> None:
        """Print a line."""
        if self._console is not None:
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def _stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True)


def _new_bar(console: Console) -> Progress:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
