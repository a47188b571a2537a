"""The one wheel, in every CPython on the machine that it is for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from built.installation import PROJECT, Environment

VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
# What another Python could break: every kind of waiting, errors, threads, the end of the process.
TESTS = ("test_gate", "test_permit", "test_generation", "test_async", "test_errors", "test_exit")
TESTS += ("test_engine", "test_exports", "test_gil")


@cache
def pythons() -> dict[str, Path]:
    """The first working interpreter of each version, on the path or installed by pyenv."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep)]
    root = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    folders += sorted(root.glob("versions/3.*/bin"))
    found: dict[str, Path] = {".".join(map(str, sys.version_info[:2])): Path(sys.executable)}
    for folder in folders:
        for program in sorted(folder.glob("python3.*")):
            if not re.fullmatch(r"python3\.\d+", program.name):
                continue
            version = _version(program)
            if version in VERSIONS:
                found.setdefault(version, program)
    return found


def _version(program: Path) -> str | None:
    """None for what does not run, has no venv module, or is no CPython with a GIL."""
    code = """
import sys, sysconfig, venv
assert sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
print("%d.%d" % sys.version_info[:2])
"""
    done = subprocess.run([program, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel_in(version: str, wheel: Path, tmp_path: Path) -> None:
    python = pythons().get(version)
    if python is None:
        pytest.skip(f"no CPython {version} on this machine")
    environment = Environment.create(tmp_path / "venv", python)
    environment.install(wheel, "--group", f"{PROJECT / 'pyproject.toml'}:test")
    files = [PROJECT / "tests/python" / f"{name}.py" for name in TESTS]
    said = environment.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *files)
    print(said)
    assert re.search(r"\d+ passed", said)
