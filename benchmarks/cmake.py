"""Builds the programs that the benchmarks run, with the CMake of this environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.settings import PROJECT


class BuildError(Exception):
    """A program could not be built."""


def build(source: Path, tree: Path, *, targets: Sequence[str], options: Sequence[str] = ()) -> None:
    """Configure and build; what cmake says goes into a file beside the tree.

    Raises:
        BuildError: there is no cmake, or it failed.
    """
    cmake = _tool("cmake")
    configure = [cmake, "-S", str(source), "-B", str(tree), "-G", "Ninja"]
    configure += [f"-DCMAKE_MAKE_PROGRAM={_tool('ninja')}", *options]
    log = tree.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as output:
        for command in (configure, [cmake, "--build", str(tree), "--target", *targets]):
            done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
            if done.returncode != 0:
                raise BuildError(
                    f"{tree.name}: got exit code {done.returncode} from cmake, expected a build, "
                    f"see {log.relative_to(PROJECT)}"
                )


def _tool(name: str) -> str:
    """The one of this environment, else the system's."""
    own = Path(sys.executable).parent / name
    found = str(own) if own.exists() else shutil.which(name)
    if found is None:
        raise BuildError(
            f"benchmarks: got no {name}, expected it to be installed, run: pip install {name}"
        )
    return found
