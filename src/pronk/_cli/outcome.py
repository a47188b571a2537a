"""How a command ends: every error becomes one readable line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

import pronk

FAILED = 1
INTERRUPTED = 128 + 2  # as a shell reports SIGINT
BROKEN_PIPE = 128 + 13  # as a shell reports SIGPIPE


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a line that says how far the command came."""


@contextmanager
def reporting(debug: bool) -> Iterator[None]:
    """Run the body of a command.

    Args:
        debug: Let errors of pronk through, so that Python prints a traceback.

    Raises:
        typer.Exit: With the exit code, after the message was printed on standard error.
    """
    try:
        _open_missing_streams()
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()
        raise typer.Exit(BROKEN_PIPE) from None
    except KeyboardInterrupt as interrupt:
        _say(str(interrupt) or "interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except pronk.Error as error:
        if debug:
            raise
        _say(" ".join(str(error).split()))
        raise typer.Exit(FAILED) from None
    except OSError as error:
        # A full disk behind standard output, most of all.
        if debug:
            raise
        _say(str(error))
        _discard_stdout()
        raise typer.Exit(FAILED) from None


def _open_missing_streams() -> None:
    """Give streams that the caller closed something to read from and write to."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - as long as we run


def _say(message: str) -> None:
    typer.echo(f"pronk: {message}", err=True)


def _discard_stdout() -> None:
    """Point standard output at nothing, or Python complains when it flushes it at exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
