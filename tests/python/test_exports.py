"""The public face: all of it is listed, documented and named as users see it."""

from __future__ import annotations

import inspect
import types
import typing

import pytest

import pronk
import pronk.testing


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
