"""Refuses to be imported where it cannot work."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any


def _interpreters() -> Any:
    for name in ("_interpreters", "_xxsubinterpreters"):
        with suppress(ImportError):
            return import_module(name)
    return None


def _require_main_interpreter() -> None:
    """Raise ImportError in a subinterpreter.

    The types of an extension module are registered once per process: a second registration would
    take them away from the first interpreter.
    """
    interpreters = _interpreters()
    if interpreters is None:
        return
    if interpreters.get_current() != interpreters.get_main():
        raise ImportError(
            "pronk: got an import in a subinterpreter, expected the main interpreter, import it "
            "there or use threads",
            name="pronk",
        )


_require_main_interpreter()
