"""What a tool returned, as a text for the model."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pronk._core import InferenceEngine

# No vocabulary has many tokens that are longer.
_BYTES_PER_TOKEN = 16


def content_of(value: object) -> str:
    """Return a text as it is and anything else as JSON.

    Raises:
        ValueError, TypeError, RecursionError: There is no JSON for it: a list in itself.
    """
    if isinstance(value, str):
        text = value
    elif importlib.util.find_spec("pydantic_core") is not None:
        from pydantic_core import to_json

        # Knows dataclasses, models, dates, sets, bytes; of all else it takes the str().
        text = to_json(value, fallback=str).decode()
    else:
        text = json.dumps(value, ensure_ascii=False, default=str)
    # Lone surrogates, as in odd file names, are no text for a model.
    return text.encode("utf-8", "replace").decode()


def describe(error: BaseException) -> str:
    """Return what the model is told of an exception."""
    return content_of(f"error: {type(error).__name__}: {reason_of(error)}")


def reason_of(error: BaseException) -> str:
    """Return the text of an exception, whatever its ``__str__`` does."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - that of the user's class
        return ""


def cut(text: str, limit: int, engine: InferenceEngine) -> str:
    """Return the text, or as much of it as has ``limit`` tokens and a word about the rest."""
    # However long it is, no more is looked at than matters.
    head = text.encode()[: limit * _BYTES_PER_TOKEN].decode("utf-8", "ignore")
    tokens = engine.tokenize(head, add_special=False)
    if len(tokens) <= limit and len(head) == len(text):
        return text
    kept = head[: len(engine.detokenize(tokens[:limit]).rstrip("\ufffd"))]
    return f"{kept}\n[cut off: the first {len(kept)} of {len(text)} characters]"
