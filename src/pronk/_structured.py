"""Schemas on their way into the core, and values on their way out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pronk._chat import to_json
from pronk._errors import InvalidArgumentError, InvalidTypeError

if TYPE_CHECKING:
    from pronk._core import Completion, Generation

_models: WeakKeyDictionary[Generation | Completion, Any] = WeakKeyDictionary()


def _is_model(value: object) -> bool:
    # Pydantic itself need not be there.
    return isinstance(value, type) and hasattr(value, "model_json_schema")


def schema_text(value: object, what: str = "json_schema") -> str:
    """Return a JSON schema as text: of a dict, of JSON text, of a pydantic model class."""
    if isinstance(value, str):
        return value
    if _is_model(value):
        return to_json(what, _schema_of_model(value, what))
    if not isinstance(value, Mapping | bool):
        raise InvalidTypeError(
            f"{what}: got {value!r:.80} ({type(value).__name__}), expected a dict, JSON text or a "
            "pydantic model class, pass one of them"
        )
    return to_json(what, value)


def _schema_of_model(model: Any, what: str) -> object:
    try:
        return model.model_json_schema()
    except Exception as error:
        # Pydantic has no class for all that it says here, nor need it be pydantic.
        raise InvalidTypeError(
            f"{what}: got {model!r:.80}, which has no JSON schema "
            f"({str(error).splitlines()[0] if str(error) else type(error).__name__}), expected a "
            "pydantic model class with fields that JSON can hold, change its fields"
        ) from error


def response_schema(value: object) -> object:
    """Return the schema that OpenAI's ``response_format`` asks for, None for free text."""
    what = "response_format"
    if _is_model(value):
        return value
    if not isinstance(value, Mapping):
        raise InvalidTypeError(
            f"{what}: got {value!r:.80} ({type(value).__name__}), expected a dict or a pydantic "
            "model class, pass {'type': 'json_schema', 'json_schema': {'schema': ...}}"
        )
    kind = value.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    inner = value.get("json_schema")
    if kind == "json_schema" and isinstance(inner, Mapping):
        schema = inner.get("schema")
        if isinstance(schema, Mapping):
            return schema
    raise InvalidArgumentError(
        f"{what}: got {dict(value)!r:.80}, expected {{'type': 'json_object'}} or {{'type': "
        "'json_schema', 'json_schema': {'schema': ...}}, pass one of them"
    )


def remember(generation: Generation, schema: object) -> None:
    """Have the completion of ``generation`` parsed as the model class ``schema``, if it is one."""
    if _is_model(schema):
        _models[generation] = schema


def hand_over(generation: Generation, completion: Completion) -> None:
    """Have ``completion`` parsed as its ``generation`` is to be."""
    model = _models.get(generation)
    if model is not None:
        _models[completion] = model


def parsed(completion: Completion) -> Any:
    """Return the value of a completion that is JSON."""
    if completion.finish_reason != "stop":
        return None
    model = _models.get(completion)
    if model is None:
        return json.loads(completion.text)
    return model.model_validate_json(completion.text)
