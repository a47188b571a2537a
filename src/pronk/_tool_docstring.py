"""What a docstring says of a function and its parameters, in Google, NumPy or Sphinx style."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pronk._extras import require


@dataclass(frozen=True)
class Documentation:
    """Texts for the model."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


def documentation_of(function: Callable[..., Any]) -> Documentation:
    """Read the docstring of ``function``; sections such as Returns or Raises are left out.

    Raises:
        pronk.MissingDependencyError: docstring_parser is not installed.
    """
    text = _docstring(function)
    if not text:
        return Documentation()
    parser = require("docstring_parser", "tool")
    try:
        parsed = parser.parse(text)
    except parser.ParseError:
        return Documentation(text)
    parts = (parsed.short_description, parsed.long_description)
    parameters = {}
    for parameter in parsed.params:
        # NumPy style lets several parameters share a description.
        for name in parameter.arg_name.split(","):
            parameters[name.strip().lstrip("*")] = " ".join((parameter.description or "").split())
    return Documentation("\n".join(part.strip() for part in parts if part), parameters)


def _docstring(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function):
        return inspect.getdoc(function) or ""
    # An object with __call__. That of a class without one is inherited, with its own docstring.
    call = type(function).__call__
    text = inspect.getdoc(call) if inspect.isfunction(call) else None
    return text or inspect.getdoc(type(function)) or ""
