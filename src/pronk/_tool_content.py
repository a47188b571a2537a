"""What a tool returned, as a text for the model."""

from __future__ import annotations

import importlib.util
import json


def content_of(value: object, limit: int | None) -> str:
    """Return a text as it is and anything else as JSON, cut to ``limit`` characters.

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
    text = text.encode("utf-8", "replace").decode("utf-8")
    if limit is None or len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut off: the first {limit} of {len(text)} characters]"
