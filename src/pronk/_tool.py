"""Python functions that a model may call."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, overload

from pronk._errors import InvalidArgumentError, InvalidTypeError
from pronk._tool_docstring import Documentation, documentation_of
from pronk._tool_parameters import FunctionParameters, Parameters, SchemaParameters

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

# A century: what any clock and wait can take.
_MAX_SECONDS = 100 * 365 * 86400.0
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Tool(Generic[P, R]):
    """A function with what a model has to know to call it. Made by :func:`tool`.

    It can be called like the function. As an attribute of a class it is a method. The schema is
    made at its first use.

    Attributes:
        needs_approval: Whether an agent asks before each call.
        timeout: Seconds that a call may take, or None.

    Example:
        >>> @pronk.tool
        ... def multiply(a: int, b: int) -> int:
        ...     "Return the product of two numbers."
        ...     return a * b
        >>> multiply(12, 34)
        408
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        schema: Mapping[str, Any] | None = None,
        needs_approval: bool = False,
        timeout: float | None = None,
    ) -> None:
        if not callable(function):
            raise InvalidTypeError(
                f"tool: got {function!r:.80} ({type(function).__name__}), expected a function or "
                "another callable, decorate or pass one"
            )
        if timeout is not None and not _is_time(timeout):
            raise InvalidArgumentError(
                f"timeout: got {timeout!r:.80}, expected seconds above 0 and at most "
                f"{_MAX_SECONDS:.0f}, or None, pass how long a call may take"
            )
        self._function = function
        self._options: dict[str, Any] = {
            "name": name,
            "description": description,
            "schema": schema,
            "needs_approval": needs_approval,
            "timeout": timeout,
        }
        self.needs_approval: bool = bool(needs_approval)
        self.timeout: float | None = timeout
        given = _split(schema)
        self._given_schema = given.get("parameters")
        if name is None:
            name = given.get("name") or _name_of(function)
        self.name: str = _checked_name(name)
        self._description = description if description is not None else given.get("description")
        functools.update_wrapper(self, function, updated=())

    @property
    def description(self) -> str:
        """What the model is told: the summary of the docstring, unless it was given."""
        if self._description is not None:
            return self._description
        return self._documentation.description

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the arguments."""
        return self.parameters.schema

    @property
    def definition(self) -> dict[str, Any]:
        """The tool as ``permit.chat(tools=[...])`` takes it, in OpenAI's form."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.schema,
            },
        }

    @property
    def is_async(self) -> bool:
        """Whether calls are awaited in an event loop; others run in threads."""
        function: Any = self._function
        while isinstance(function, functools.partial):
            function = function.func
        return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - a bound method of an object
        )

    @functools.cached_property
    def parameters(self) -> Parameters:
        """The schema, and the check of arguments."""
        if self._given_schema is not None:
            return SchemaParameters(self._given_schema, self.name)
        return FunctionParameters(self._function, self.name, self._documentation.parameters)

    @functools.cached_property
    def _documentation(self) -> Documentation:
        return documentation_of(self._function)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Tool[..., R]:
        bind = getattr(self._function, "__get__", None)
        if instance is None or bind is None:
            return self
        return Tool(bind(instance, owner), **(self._options | {"name": self.name}))

    def __repr__(self) -> str:
        return f"<pronk.Tool {self.name}>"


@overload
def tool(
    function: Callable[P, R],
    *,
    name: str | None = None,
    description: str | None = None,
    schema: Mapping[str, Any] | None = None,
    needs_approval: bool = False,
    timeout: float | None = None,
) -> Tool[P, R]: ...


@overload
def tool(
    function: None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    schema: Mapping[str, Any] | None = None,
    needs_approval: bool = False,
    timeout: float | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    schema: Mapping[str, Any] | None = None,
    needs_approval: bool = False,
    timeout: float | None = None,
) -> Any:
    """Make a tool of a function: a decorator, with or without arguments, or a plain call.

    The name is that of the function; the description is the summary of its docstring; the schema
    comes from its signature, type hints and the descriptions of its parameters in Google, NumPy or
    Sphinx style. Whatever pydantic knows may be a hint: the arguments of the model are checked and
    converted before the call. What ``functools.partial`` binds by name the model does not see.

    Args:
        function: Sync or async function, method, partial, or object with ``__call__``.
        name: Letters, digits, ``_`` and ``-``, at most 64.
        description: Instead of the docstring's.
        schema: Instead of the signature: a tool in OpenAI's form, or the JSON schema of the
            arguments alone. They are then checked against it and passed by name as they are.
        needs_approval: Agents ask their ``approve`` callback before each call.
        timeout: Seconds that a call may take; the model is told when it took longer. A sync
            function cannot be stopped: it is left alone and what it returns is dropped.

    Raises:
        pronk.InvalidArgumentError, pronk.InvalidTypeError: A bad argument. What is wrong with type
            hints or the schema is found at the first use.

    Example:
        >>> @pronk.tool(timeout=10)
        ... def weather(city: str, days: int = 1) -> str:
        ...     '''Return the weather forecast.
        ...
        ...     Args:
        ...         city: Name of the city, in English.
        ...         days: How many days, from today.
        ...     '''
        >>> agent = pronk.Agent(scheduler, tools=[weather])
    """
    options: dict[str, Any] = {
        "name": name,
        "description": description,
        "schema": schema,
        "needs_approval": needs_approval,
        "timeout": timeout,
    }
    if function is None:
        return lambda decorated: Tool(decorated, **options)
    return Tool(function, **options)


def as_tools(tools: object) -> tuple[Tool[..., Any], ...]:
    """Return tools of functions and tools, sorted by name.

    The order decides the prompt: sorted, agents with the same tools share it, however they list
    them.

    Raises:
        pronk.InvalidArgumentError, pronk.InvalidTypeError: Something is no tool, or two have the
            same name.
    """
    if isinstance(tools, (str, bytes, Mapping)) or not hasattr(tools, "__iter__"):
        raise InvalidTypeError(
            f"tools: got {tools!r:.80} ({type(tools).__name__}), expected a list of functions, "
            "pass functions or what pronk.tool() returns"
        )
    by_name: dict[str, Tool[..., Any]] = {}
    for each in tools:
        made = each if isinstance(each, Tool) else tool(each)
        if made.name in by_name:
            raise InvalidArgumentError(
                f"tools: got two of the name {made.name!r}, expected different names, "
                "pass name= to pronk.tool()"
            )
        by_name[made.name] = made
    return tuple(by_name[name] for name in sorted(by_name))


def _split(schema: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Take a schema apart, whichever of its forms it has."""
    if schema is None:
        return {}
    if not isinstance(schema, Mapping):
        raise InvalidTypeError(
            f"schema: got {schema!r:.80} ({type(schema).__name__}), expected a dict, pass a tool "
            "in OpenAI's form or a JSON schema"
        )
    function = schema.get("function")
    if schema.get("type") == "function" and isinstance(function, Mapping):
        schema = function
    elif "parameters" not in schema or "properties" in schema:
        return {"parameters": schema}
    return {"parameters": {}, **schema}


def _name_of(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", None) or type(function).__name__


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"name: got {name!r:.80}, expected 1 to 64 letters, digits, '_' or '-', pass name="
        )
    return name


def _is_time(value: object) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 0 < value <= _MAX_SECONDS  # type: ignore[operator]
