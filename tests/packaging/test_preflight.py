"""What a machine that lacks something is told, before anything is downloaded or built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


def preflight(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "tools/preflight.py"],
        cwd=PROJECT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    # Without the variables that a make around this one hands down.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    command = ["make", *arguments]
    return subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True)


def test_a_machine_that_can_build() -> None:
    done = preflight()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_all_that_is_missing_is_named_at_once(tmp_path: Path) -> None:
    done = preflight(PATH=str(tmp_path), CC="", CXX="")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert [line.split(": ")[1] for line in lines] == ["git", "CC", "CXX"]
    assert all("expected" in line for line in lines)


@pytest.mark.parametrize("compiler", ["/nonexistent/c++", "false", "/nonexistent/ccache 'g ++'"])
def test_a_compiler_that_cannot(compiler: str) -> None:
    done = preflight(CXX=compiler)
    assert done.returncode == 1
    assert done.stderr.startswith(f"preflight: {compiler}: got ")
    assert "expected a C++20 compiler" in done.stderr
    assert "set CXX=..." in done.stderr


def test_a_compiler_of_the_last_decade(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho 'error: unrecognized option -std=c++20' >&2\nexit 1\n")
    old.chmod(0o755)
    done = preflight(CXX=str(old))
    assert done.returncode == 1
    assert "unrecognized option -std=c++20" in done.stderr


def test_make_without_python(tmp_path: Path) -> None:
    done = make("PYTHON=/nonexistent/python", f"VENV={tmp_path / 'venv'}", "install")
    assert done.returncode == 2
    assert "/nonexistent/python: got " in done.stderr
    assert "expected Python 3.10 or newer" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_make_leaves_an_environment_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    done = make(f"PYTHON={sys.executable}", f"VENV={tmp_path}", "install")
    assert done.returncode == 2
    assert "move it away or set VENV=..." in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
