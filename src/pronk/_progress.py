"""How long work is reported: by a bar on a terminal or a function of the user's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from pronk._errors import InvalidTypeError

if TYPE_CHECKING:
    from collections.abc import Iterator

Report = Callable[[float], object]


def reporter(
    progress: bool | Report | None, label: str = "Loading the model"
) -> AbstractContextManager[Report | None]:
    """Return a context that gives the function to call with the fraction done, or None.

    ``label`` stands before the bar.

    Raises:
        pronk.InvalidTypeError: ``progress`` is neither a bool, None nor callable.
    """
    if progress is None or progress is False:
        return nullcontext(None)
    if progress is True:
        return _bar(label)
    if callable(progress):
        return nullcontext(progress)
    raise InvalidTypeError(
        f"progress: got {progress!r} ({type(progress).__name__}), expected None, True, False or "
        "a function of one float, pass True for a progress bar"
    )


@contextmanager
def _bar(label: str) -> Iterator[Report | None]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=1.0)

        def report(fraction: float) -> None:
            bar.update(task, completed=fraction)

        yield report
