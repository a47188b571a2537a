"""Commands and environments, apart from the environment that the tests themselves run in."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]

# A guard against hangs: without a warm ccache, llama.cpp takes minutes to compile.
BUILD_SECONDS = 1500


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command and return what it printed; on failure, fail with its output."""
    # What is exported here is not meant for the environments under test.
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stdout[-8000:]}"
    return done.stdout


@dataclass(frozen=True)
class Environment:
    """A virtual environment."""

    path: Path

    @classmethod
    def create(cls, path: Path, python: Path | str = sys.executable) -> Environment:
        # The pip of this environment serves the others: to install one takes seconds.
        run(python, "-m", "venv", "--without-pip", path, cwd=path.parent)
        return cls(path)

    @property
    def bin(self) -> Path:
        return self.path / "bin"

    @property
    def site_packages(self) -> Path:
        (path,) = self.path.glob("lib/python*/site-packages")
        return path

    def run(self, *command: str | Path, cwd: Path | None = None, **environment: str) -> str:
        """Run a program of the environment; outside of the project, so that only what is installed
        can be imported.
        """
        name, *arguments = command
        return self._run(self.bin / name, *arguments, cwd=cwd or self.path, **environment)

    def install(self, *requirements: str | Path, **environment: str) -> None:
        pip = [sys.executable, "-m", "pip", "--python", self.bin / "python"]
        self._run(*pip, "install", "--quiet", *requirements, cwd=self.path, **environment)

    def _run(self, *command: str | Path, cwd: Path, **environment: str) -> str:
        search = f"{self.bin}{os.pathsep}{os.environ.get('PATH', '')}"
        return run(*command, cwd=cwd, **{"PATH": search, **environment})
