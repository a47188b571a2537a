"""Chats on their way into the core."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pronk._errors import InvalidArgumentError, InvalidTypeError


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r:.80} ({type(value).__name__})")


def to_json(what: str, value: object) -> str:
    """Return ``value`` as JSON text; ``what`` names it in errors."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except TypeError as error:
        raise InvalidTypeError(
            f"{what}: got {error}, expected dicts, lists, strings, numbers, booleans and None, "
            "convert it first"
        ) from None
    except ValueError as error:
        raise InvalidArgumentError(
            f"{what}: got a value that JSON cannot hold ({error}), expected finite numbers and "
            "no object within itself, replace it"
        ) from None
    except RecursionError:
        raise InvalidArgumentError(
            f"{what}: got values nested too deeply, expected at most 128 levels, flatten them"
        ) from None


def tool_name(choice: Mapping[str, object]) -> str:
    """Return the name in OpenAI's form of a tool choice."""
    if not isinstance(choice, Mapping):
        raise InvalidTypeError(
            f"tool_choice: got {choice!r:.80}, expected a str or a dict, "
            "pass 'auto', 'none', 'required' or the name of a tool"
        )
    function = choice.get("function")
    name = function.get("name") if isinstance(function, Mapping) else choice.get("name")
    if choice.get("type") != "function" or not isinstance(name, str) or not name:
        raise InvalidArgumentError(
            f"tool_choice: got {dict(choice)!r:.80}, expected "
            "{'type': 'function', 'function': {'name': ...}}, or pass the name alone"
        )
    return name
