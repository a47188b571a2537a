"""Functions as tools: what the model is told of them, and what they are called with."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal

import jsonschema
import pydantic
import pytest

import pronk
from pronk._tool import as_tools
from pronk._tool_parameters import ArgumentsError, read_arguments


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Order(pydantic.BaseModel):
    item: str
    count: int = pydantic.Field(1, ge=1)


def google(city: str, days: int = 1) -> str:
    """Return the weather.

    Looks it up
    in a table.

    Args:
        city: Name of the city,
            in English.
        days: How many days.

    Returns:
        A forecast.
    """
    return f"{city} {days}"


def numpy(city: str, days: int = 1) -> str:
    """Return the weather.

    Looks it up
    in a table.

    Parameters
    ----------
    city : str
        Name of the city,
        in English.
    days : int, optional
        How many days.

    Returns
    -------
    str
        A forecast.
    """
    return f"{city} {days}"


def sphinx(city: str, days: int = 1) -> str:
    """Return the weather.

    Looks it up
    in a table.

    :param city: Name of the city,
        in English.
    :param days: How many days.
    :returns: A forecast.
    """
    return f"{city} {days}"


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_docstring_styles(function: Callable[..., str]) -> None:
    made = pronk.tool(function)
    assert made.definition == {
        "type": "function",
        "function": {
            "name": function.__name__,
            "description": "Return the weather.\nLooks it up\nin a table.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Name of the city, in English."},
                    "days": {"type": "integer", "default": 1, "description": "How many days."},
                },
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
    assert made("Rome", days=2) == "Rome 2"


def bind(function: Callable[..., Any], **arguments: Any) -> Any:
    """Call as an agent does."""
    args, kwargs = pronk.tool(function).parameters.bind(arguments)
    return function(*args, **kwargs)


def hinted(
    when: datetime.date,
    where: Point,
    orders: list[Order],
    colour: Colour = Colour.RED,
    mode: Literal["a", "b"] = "a",
    size: Annotated[int, pydantic.Field(ge=0, description="Its own words.")] = 3,
    note: str | None = None,
) -> tuple[Any, ...]:
    """Take much.

    Args:
        size: Not these.
    """
    return when, where, orders, colour, mode, size, note


def test_values_arrive_as_the_hints_say() -> None:
    assert bind(
        hinted,
        when="2026-02-03",
        where={"x": 1},
        orders=[{"item": "tea"}, {"item": "milk", "count": 2}],
        colour="blue",
    ) == (
        datetime.date(2026, 2, 3),
        Point(1),
        [Order(item="tea"), Order(item="milk", count=2)],
        Colour.BLUE,
        "a",
        3,
        None,
    )
    schema = pronk.tool(hinted).schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["size"]["description"] == "Its own words."
    assert schema["properties"]["mode"]["enum"] == ["a", "b"]
    assert "title" not in str({k: v for k, v in schema.items() if k != "$defs"})


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "when: missing"),
        ({"when": "soon"}, "when: "),
        ({"when": "2026-02-03", "where": {"x": "far"}}, "where.x: "),
        ({"when": "2026-02-03", "where": {"x": 1}, "orders": [{"item": 1}]}, "orders.0.item: "),
        ({"when": "2026-02-03", "where": {"x": 1}, "orders": [], "size": -1}, "size: "),
        ({"when": "2026-02-03", "where": {"x": 1}, "orders": [], "sise": 1}, "sise: "),
        ({"when": "2026-02-03", "where": {"x": 1}, "orders": "many" * 1000}, "orders: "),
    ],
)
def test_wrong_arguments_say_what_is_wrong(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ArgumentsError) as caught:
        bind(hinted, **arguments)
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 2000


def test_parameter_names_that_a_model_class_refuses() -> None:
    def odd(schema: str, json: int, model_config: str, _private: int = 0, self: int = 1) -> Any:
        return schema, json, model_config, _private, self

    assert bind(odd, schema="s", json=1, model_config="m", self=5) == ("s", 1, "m", 0, 5)
    assert list(pronk.tool(odd).schema["properties"]) == [
        "schema",
        "json",
        "model_config",
        "_private",
        "self",
    ]


def test_positional_only_and_defaults_that_json_does_not_know() -> None:
    marker = object()

    def function(a: int, b: int = 2, /, c: Any = marker, *, d: int = 4) -> Any:
        return a, b, c, d

    assert bind(function, a=1) == (1, 2, marker, 4)
    assert bind(function, a=1, c="x", d=0) == (1, 2, "x", 0)
    assert bind(function, a=1, b=5) == (1, 5, marker, 4)


class Shop:
    """A shop."""

    def __init__(self, name: str) -> None:
        self.name = name

    @pronk.tool(needs_approval=True, timeout=3)
    def buy(self, item: str) -> str:
        """Buy something."""
        return f"{item} at {self.name}"

    def look(self, shelf: int) -> str:
        """Look at a shelf.

        Args:
            shelf: Which.
        """
        return f"{self.name} {shelf}"

    def __call__(self, question: str) -> str:
        """Ask the owner."""
        return question

    @classmethod
    def open(cls, name: str) -> str:
        """Open a shop."""
        return f"{cls.__name__} {name}"

    @staticmethod
    def close(name: str) -> str:
        """Close a shop."""
        return name


def test_methods() -> None:
    shop = Shop("Here")
    assert (shop.buy.name, shop.buy.needs_approval, shop.buy.timeout) == ("buy", True, 3)
    assert list(shop.buy.schema["properties"]) == ["item"]
    assert shop.buy("tea") == "tea at Here"
    assert Shop("There").buy("tea") == "tea at There"
    assert pronk.tool(shop.look).schema["properties"] == {
        "shelf": {"type": "integer", "description": "Which."}
    }
    assert bind(shop.look, shelf=2) == "Here 2"
    assert pronk.tool(Shop.open).definition["function"]["description"] == "Open a shop."
    assert bind(Shop.open, name="x") == "Shop x"
    assert bind(shop.close, name="x") == "x"


def test_objects_and_partials() -> None:
    shop = pronk.tool(Shop("Here"))
    assert (shop.name, shop.description) == ("Shop", "Ask the owner.")
    assert list(shop.schema["properties"]) == ["question"]

    def read(root: str, path: str, mode: str = "r") -> str:
        """Read a file."""
        return f"{root} {path} {mode}"

    for bound in (functools.partial(read, root="/safe"), functools.partial(read, "/safe")):
        made = pronk.tool(bound)
        assert (made.name, made.description) == ("read", "Read a file.")
        # What is bound is not for the model to choose.
        assert list(made.schema["properties"]) == ["path", "mode"]
        with pytest.raises(ArgumentsError, match="root"):
            made.parameters.bind({"path": "x", "root": "/"})
        args, kwargs = made.parameters.bind({"path": "x"})
        assert made(*args, **kwargs) == "/safe x r"


def test_async_functions_are_known() -> None:
    async def function() -> None: ...

    class Object:
        async def __call__(self) -> None: ...

    assert pronk.tool(function).is_async
    assert pronk.tool(functools.partial(function)).is_async
    assert pronk.tool(Object()).is_async
    assert not pronk.tool(google).is_async


def test_decorated_functions_are_seen_through() -> None:
    @functools.wraps(google)
    def wrapper(*args: Any, **kwargs: Any) -> str:
        return google(*args, **kwargs)

    assert pronk.tool(wrapper).definition == pronk.tool(google).definition
    assert bind(wrapper, city="Rome") == "Rome 1"


def test_names_and_descriptions_may_be_given() -> None:
    @pronk.tool(name="go", description="Go there.")
    def function(a):  # type: ignore[no-untyped-def]
        """Not this."""
        return a

    assert (function.name, function.description) == ("go", "Go there.")
    assert function.__name__ == "function"
    assert function.schema["properties"] == {"a": {}}
    assert pronk.tool(function, name="other") is not function
    assert pronk.tool(lambda: 1, name="one").schema["properties"] == {}


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}, "tag": {"enum": ["a", "b"]}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "function", "function": {"name": "f", "description": "D", "parameters": SCHEMA}},
        {"name": "f", "description": "D", "parameters": SCHEMA},
        SCHEMA,
    ],
)
def test_ready_made_schemas(schema: dict[str, Any]) -> None:
    def f(**values: Any) -> Any:
        """D."""
        return values

    made = pronk.tool(f, schema=schema)
    assert made.name == "f"
    assert made.description.rstrip(".") == "D"
    assert made.schema == SCHEMA
    assert made.parameters.bind({"n": 2, "tag": "a"}) == ((), {"n": 2, "tag": "a"})
    for wrong, where in (
        ({}, "'n'"),
        ({"n": "2"}, "n:"),
        ({"n": 0}, "n:"),
        ({"n": 1, "x": 1}, "x"),
    ):
        with pytest.raises(ArgumentsError, match=where):
            made.parameters.bind(wrong)
    # A copy.
    made.schema["properties"]["n"]["minimum"] = 5
    assert str(SCHEMA).count("'minimum': 1") == 1


def test_a_function_without_parameters() -> None:
    schema = {"type": "function", "function": {"name": "now"}}
    made = pronk.tool(lambda: "noon", schema=schema)
    assert made.schema == {"type": "object", "properties": {}}
    assert made.parameters.bind({}) == ((), {})


def test_no_reference_is_fetched() -> None:
    made = pronk.tool(google, schema={"properties": {"a": {"$ref": "https://example.com/x.json"}}})
    with pytest.raises(Exception, match=r"example\.com"):
        made.parameters.bind({"a": 1})


def refused(function: Any, **options: Any) -> str:
    with pytest.raises(pronk.Error) as caught:
        _ = pronk.tool(function, **options).schema
    message = str(caught.value)
    assert ": got " in message
    assert "expected" in message
    return message


def test_what_cannot_be_a_tool() -> None:
    def many(*args: int) -> None: ...
    def any_(**kwargs: int) -> None: ...
    def callback(f: Callable[[int], int]) -> None: ...
    def unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821

    class Plain: ...

    def plain(a: Any) -> None: ...

    plain.__annotations__["a"] = Plain
    assert "*args" in refused(many)
    assert "**kwargs" in refused(any_)
    assert "callback" in refused(callback)
    assert "Nowhere" in refused(unknown)
    assert "plain" in refused(plain)
    assert "name" in refused(lambda: 1)
    refused(5)
    refused(google, name="a b")
    refused(google, name="")
    refused(google, name="x" * 65)
    refused(google, timeout=0)
    refused(google, timeout=float("nan"))
    refused(google, timeout="1")
    refused(google, schema=[])
    refused(google, schema={"type": "array"})
    refused(google, schema={"type": "object", "properties": {"a": {"type": "nothing"}}})


def test_lists_of_tools() -> None:
    def b() -> None: ...
    def a() -> None: ...

    assert [each.name for each in as_tools([b, pronk.tool(a)])] == ["a", "b"]
    for wrong in (None, "ab", {"a": a}, 5):
        with pytest.raises(pronk.InvalidTypeError, match="tools: got"):
            as_tools(wrong)
    with pytest.raises(pronk.InvalidArgumentError, match="two of the name 'a'"):
        as_tools([a, pronk.tool(b, name="a")])


@pytest.mark.parametrize(
    "text", ["{", "[1]", '"a"', "null", "1" * 5000, '{"a": ' * 100_000, "{'a': 1}", "\x00", "NaN"]
)
def test_text_that_is_no_arguments(text: str) -> None:
    with pytest.raises(ArgumentsError) as caught:
        read_arguments(text)
    assert len(str(caught.value)) < 400


def test_text_that_is_arguments() -> None:
    assert read_arguments('{"a": {"b": [1, null]}}') == {"a": {"b": [1, None]}}
    assert read_arguments("") == read_arguments(" \n") == {}


@pytest.mark.parametrize("missing", ["pydantic", "docstring_parser", "jsonschema"])
def test_a_missing_package_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    options = {"schema": SCHEMA} if missing == "jsonschema" else {}
    with pytest.raises(pronk.MissingDependencyError, match=r"pronk\[agents\]") as caught:
        _ = pronk.tool(google, **options).schema
    assert isinstance(caught.value, ImportError)
    assert caught.value.name == missing


def test_importing_pronk_imports_none_of_them(child: Callable[..., Any]) -> None:
    child(
        """
        import sys, pronk
        heavy = {"pydantic", "jsonschema", "docstring_parser", "asyncio.events", "trio"}
        assert not heavy & set(sys.modules), heavy & set(sys.modules)
        """
    )


def test_a_parameter_named_self() -> None:
    def double(self: int) -> int:
        """Double it."""
        return 2 * self

    assert pronk.tool(double)(self=3) == 6
