"""The public face: all of it is listed, documented and named as users see it."""

from __future__ import annotations

import ast
import inspect
import re
import types
import typing
from pathlib import Path

import pytest

import pronk
import pronk.testing
from pronk import _core


def test_all_of_pronk_is_what_is_there() -> None:
    there = {
        name
        for name, value in vars(pronk).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert there - {"annotations"} == set(pronk.__all__) - {"__version__"}


def test_all_of_testing_is_what_it_defines() -> None:
    there = {
        name
        for name, value in vars(pronk.testing).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == "pronk.testing"
    }
    # What it lists besides are names for types, which know no module.
    assert there <= set(pronk.testing.__all__)
    assert all(hasattr(pronk.testing, name) for name in pronk.testing.__all__)


@pytest.mark.parametrize("module", [pronk, pronk.testing], ids=lambda module: module.__name__)
def test_all_is_sorted(module: types.ModuleType) -> None:
    assert list(module.__all__) == sorted(set(module.__all__))


def documented() -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for module in (pronk, pronk.testing):
        found.append((module.__name__, module))
        for name in module.__all__:
            value = getattr(module, name)
            if not callable(value) or typing.get_origin(value) is not None:
                continue
            found.append((name, value))
            if inspect.isclass(value) and not issubclass(value, BaseException):
                found += [
                    (f"{name}.{member}", inspect.getattr_static(value, member))
                    for member in vars(value)
                    if not member.startswith("_")
                ]
    return found


@pytest.mark.parametrize(("name", "value"), documented(), ids=lambda value: str(value)[:40])
def test_everything_public_is_documented(name: str, value: object) -> None:
    if isinstance(value, staticmethod):
        value = value.__func__
    text = inspect.getdoc(value) or ""
    # nanobind puts the signature first; there must be words after it.
    lines = [line for line in text.splitlines() if line and not line.startswith(("def ", "("))]
    assert lines, name


def test_classes_are_named_as_users_import_them() -> None:
    for name in pronk.__all__:
        value = getattr(pronk, name)
        if inspect.isclass(value):
            assert value.__module__ == "pronk", name


def test_version() -> None:
    assert pronk.__version__.count(".") == 2


# Classes of _core that users see as they are; its ScriptedModel has a Python class around it.
BOUND = {*pronk.__all__, "ManualClock"}


def functions() -> list[tuple[str, str, list[str]]]:
    """Name, docstring and parameters of everything that can be called, but for __init__."""
    stub = Path(_core.__file__).with_name("_core.pyi").read_text(encoding="utf-8")
    python = inspect.getsource(pronk.testing)
    found = []
    for source, public in ((stub, BOUND), (python, set(pronk.testing.__all__))):
        for part in ast.parse(source).body:
            if not isinstance(part, ast.ClassDef) or part.name not in public:
                continue
            for method in part.body:
                if not isinstance(method, ast.FunctionDef) or method.name.startswith("_"):
                    continue
                names = [a.arg for a in method.args.args + method.args.kwonlyargs]
                text = ast.get_docstring(method) or ""
                found.append((f"{part.name}.{method.name}", text, names))
    for name in ("default_model", "devices", "generate_all"):
        function = getattr(pronk, name)
        names = re.findall(r"(\w+): ", (inspect.getdoc(function) or "").splitlines()[0])
        if inspect.isfunction(function):
            names = list(inspect.signature(function).parameters)
        found.append((name, inspect.getdoc(function) or "", names))
    return found


@pytest.mark.parametrize(("name", "text", "parameters"), functions(), ids=lambda v: str(v)[:40])
def test_every_parameter_is_described(name: str, text: str, parameters: list[str]) -> None:
    missing = [p for p in parameters if p != "self" and not re.search(rf"\b{p}\b", text)]
    assert missing == [], name


@pytest.mark.parametrize("module", [pronk, pronk.testing], ids=lambda module: module.__name__)
def test_every_class_has_an_example(module: types.ModuleType) -> None:
    public = [getattr(module, name) for name in module.__all__]
    without = [
        value.__name__
        for value in public
        if inspect.isclass(value)
        and not issubclass(value, BaseException)
        and "Example:" not in (value.__doc__ or "")
    ]
    assert without == []
