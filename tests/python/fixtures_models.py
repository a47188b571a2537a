"""Fixtures for the tiny models and the llama.cpp reference; the conftest imports them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reference_program import ReferenceProgram, find_reference_program
from tiny_models import MEMORY_KINDS, Kind, tiny_model

__all__ = [
    "reference",
    "tiny",
    "tiny_any",
    "tiny_hybrid",
    "tiny_plain",
    "tiny_recurrent",
    "tiny_swa",
]

Tiny = Callable[[Kind], Path]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The path of the tiny model of any kind: `tiny("stops")`."""
    directory = tmp_path_factory.mktemp("tiny-models")
    return lambda kind: tiny_model(kind, directory)


@pytest.fixture(scope="session")
def tiny_plain(tiny: Tiny) -> Path:
    return tiny("plain")


@pytest.fixture(scope="session")
def tiny_swa(tiny: Tiny) -> Path:
    return tiny("swa")


@pytest.fixture(scope="session")
def tiny_recurrent(tiny: Tiny) -> Path:
    return tiny("recurrent")


@pytest.fixture(scope="session")
def tiny_hybrid(tiny: Tiny) -> Path:
    return tiny("hybrid")


@pytest.fixture(scope="session", params=MEMORY_KINDS)
def tiny_any(request: pytest.FixtureRequest, tiny: Tiny) -> Path:
    """A model of each memory type in turn."""
    return tiny(request.param)


@pytest.fixture(scope="session")
def reference() -> ReferenceProgram:
    """llama.cpp's own greedy text."""
    program = find_reference_program()
    if program is None:
        pytest.skip("needs the target reference_greedy: configure with -DPRONK_BUILD_TESTS=ON")
    return ReferenceProgram(program)
