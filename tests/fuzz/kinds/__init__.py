"""What is fuzzed, a module for each kind of mutant."""

from __future__ import annotations

import importlib
import random
from pathlib import Path
from typing import Protocol, cast

NAMES = ("grammar", "schema", "template", "chat", "reply", "prompt", "params", "model", "starved")
# Misbehaves in every way that the driver has to notice; for its own test.
SELF_TEST = "misbehaviour"


class Kind(Protocol):
    """How mutants of one kind are made and tried. One object serves many of them."""

    def make(self, rng: random.Random) -> bytes:
        """Make a mutant. The same `rng` gives the same bytes, whatever was made before."""

    def run(self, data: bytes) -> None:
        """Try a mutant. Whatever it raises but a `pronk.Error` is a finding."""

    def settle(self) -> None:
        """Check that all is as before."""


def load(name: str, scratch: Path) -> Kind:
    """Make the kind of that name; `scratch` is a directory for its files."""
    module = importlib.import_module(f"fuzz.kinds.{name}")
    return cast(Kind, module.make_kind(scratch))
