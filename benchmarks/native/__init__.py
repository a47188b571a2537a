"""Programs in C++ that time parts of the core by themselves."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

from benchmarks.cmake import build
from benchmarks.settings import PROJECT


@cache
def program(name: str) -> Path:
    """Return the path of a program of this directory, built first."""
    tree = PROJECT / "build" / "native-benchmarks"
    build(Path(__file__).parent, tree, targets=[name])
    return tree / "bin" / name


def run(name: str, *arguments: object) -> list[float]:
    """Run a program. Returns the numbers that it prints."""
    command = [str(program(name)), *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [float(word) for word in done.stdout.split()]
