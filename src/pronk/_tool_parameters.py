"""The parameters of a tool: their JSON schema, and the check of what a model passes for them."""

from __future__ import annotations

import copy
import functools
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from pronk._errors import InvalidArgumentError, InvalidTypeError
from pronk._extras import require

# Of one wrong value, in a message to the model.
_SHOWN_CHARS = 120
_SHOWN_ERRORS = 5

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class ArgumentsError(ValueError):
    """Arguments do not fit; the message is for the model."""


class Parameters(Protocol):
    """What a tool takes."""

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of an object."""

    def bind(self, arguments: dict[str, Any]) -> Arguments:
        """Check ``arguments`` and return what to call the function with.

        Raises:
            ArgumentsError: They do not fit.
        """


def read_arguments(text: str) -> dict[str, Any]:
    """Parse the arguments as a model wrote them; nothing at all counts as no arguments.

    Raises:
        ArgumentsError: It is not a JSON object.
    """
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArgumentsError(f"got invalid JSON ({error}): {_shown(text)}") from None
    if not isinstance(value, dict):
        raise ArgumentsError(f"got {_shown(text)}, which is no JSON object")
    return value


class FunctionParameters:
    """Those of a Python function, by its signature. Values are converted to the hinted types."""

    def __init__(
        self, function: Callable[..., Any], name: str, descriptions: Mapping[str, str]
    ) -> None:
        self._pydantic = require("pydantic", f"tool {name}")
        self._parameters = _named_parameters(function, name)
        fields: dict[str, Any] = {}
        self._fields = {}
        # Under names of our own, since a model class refuses some that a parameter may have.
        for number, parameter in enumerate(self._parameters):
            self._fields[parameter.name] = f"p{number}"
            required = parameter.default is parameter.empty
            fields[f"p{number}"] = (
                Any if parameter.annotation is parameter.empty else parameter.annotation,
                self._pydantic.Field(
                    default=... if required else parameter.default, alias=parameter.name
                ),
            )
        config = self._pydantic.ConfigDict(extra="forbid")
        try:
            self._model = self._pydantic.create_model(name, __config__=config, **fields)
            self.schema = _schema_of(self._model)
        except self._pydantic.errors.PydanticUserError as error:
            raise InvalidTypeError(
                f"tool {name}: got a type hint that no JSON schema expresses "
                f"({str(error).splitlines()[0]}), expected types that pydantic knows, "
                "change the hint or pass schema="
            ) from None
        for key, description in descriptions.items():
            if description and key in self.schema["properties"]:
                self.schema["properties"][key].setdefault("description", description)

    def bind(self, arguments: dict[str, Any]) -> Arguments:
        """Check and convert. What the model leaves out keeps the default of the function."""
        try:
            # From JSON, which is where they came from: a list may become a tuple, a text a date.
            checked = self._model.model_validate_json(json.dumps(arguments))
        except self._pydantic.ValidationError as error:
            raise ArgumentsError(
                _listed(
                    _located(each["loc"], f"{each['msg']}, got {_shown(each['input'])}")
                    if each["type"] != "missing"
                    else _located(each["loc"], "missing")
                    for each in error.errors(include_url=False)
                )
            ) from None
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in self._parameters:
            field = self._fields[parameter.name]
            given = field in checked.model_fields_set
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(getattr(checked, field) if given else parameter.default)
            elif given:
                named[parameter.name] = getattr(checked, field)
        return tuple(positional), named


class SchemaParameters:
    """Those of a ready-made JSON schema. Values arrive as JSON has them."""

    def __init__(self, schema: Mapping[str, Any], name: str) -> None:
        jsonschema = require("jsonschema", f"tool {name}")
        referencing = require("referencing", f"tool {name}")
        self.schema = copy.deepcopy(dict(schema))
        self.schema.setdefault("type", "object")
        if self.schema["type"] != "object":
            raise InvalidArgumentError(
                f"tool {name}: got a schema of type {self.schema['type']!r}, expected 'object', "
                "describe the arguments as properties of an object"
            )
        self.schema.setdefault("properties", {})
        kind = jsonschema.validators.validator_for(
            self.schema, default=jsonschema.Draft202012Validator
        )
        try:
            kind.check_schema(self.schema)
        except jsonschema.SchemaError as error:
            raise InvalidArgumentError(
                f"tool {name}: got an invalid JSON schema at {error.json_path} ({error.message}), "
                "expected a valid one, correct it"
            ) from None
        # The registry is empty, so that no reference is ever fetched.
        self._validator = kind(self.schema, registry=referencing.Registry())

    def bind(self, arguments: dict[str, Any]) -> Arguments:
        """Check. Raises what the validator raises where the schema refers to what is not there."""
        errors = sorted(self._validator.iter_errors(arguments), key=lambda error: error.json_path)
        if errors:
            raise ArgumentsError(
                _listed(_located(error.absolute_path, _cut(error.message)) for error in errors)
            )
        return (), arguments


def _named_parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError as error:
        raise InvalidTypeError(
            f"tool {name}: got a type hint that cannot be resolved ({error}), expected names that "
            "its module defines, define the type at module level or pass schema="
        ) from None
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(
            f"tool {name}: got {function!r} without a signature ({error}), expected a function "
            "with one, wrap it or pass schema="
        ) from None
    # What a partial has bound by name is not for the model to choose, though Python lets callers.
    bound = function.keywords if isinstance(function, functools.partial) else {}
    parameters = [each for each in signature.parameters.values() if each.name not in bound]
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidTypeError(
                f"tool {name}: got a parameter {parameter}, expected named parameters only, "
                "name them or pass schema="
            )
    return parameters


@functools.cache
def _schema_generator() -> Any:
    json_schema = require("pydantic.json_schema", "tool")

    class Generator(json_schema.GenerateJsonSchema):  # type: ignore[misc, name-defined] # lazy
        # A default that JSON cannot express is left out of the schema, not of the call.
        ignored_warning_kinds = frozenset({"skipped-choice", "non-serializable-default"})

        def field_title_should_be_set(self, schema: Any) -> bool:
            return False  # would repeat the name, in every prompt

    return Generator


def _schema_of(model: Any) -> dict[str, Any]:
    schema: dict[str, Any] = model.model_json_schema(
        by_alias=True, schema_generator=_schema_generator()
    )
    schema.pop("title", None)
    schema.setdefault("properties", {})
    return schema


def _located(path: Iterable[str | int], message: str) -> str:
    where = ".".join(str(part) for part in path)
    return f"{where}: {message}" if where else message


def _listed(messages: Iterable[str]) -> str:
    listed = list(messages)
    more = len(listed) - _SHOWN_ERRORS
    return "; ".join(listed[:_SHOWN_ERRORS]) + (f"; and {more} more" if more > 0 else "")


def _shown(value: object) -> str:
    return _cut(value if isinstance(value, str) else repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."
