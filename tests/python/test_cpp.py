"""The C++ tests, each as a test of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from fixtures_models import Tiny
from tiny_models import MEMORY_KINDS

_ROOT = Path(__file__).resolve().parents[2]
_ENVIRONMENT = "PRONK_CPP_TESTS"


def _find_program() -> Path | None:
    """The program that the environment names, or else the newest one in a build tree."""
    named = os.environ.get(_ENVIRONMENT)
    if named:
        path = Path(named)
        if not path.is_file():
            raise FileNotFoundError(f"{_ENVIRONMENT}: got {named!r}, expected a program")
        return path.resolve()
    built = [tree / "tests" / "cpp" / "pronk_tests" for tree in _build_trees()]
    return max(
        (path for path in built if path.is_file()),
        key=lambda path: path.stat().st_mtime,
        default=None,
    )


def _build_trees() -> list[Path]:
    """Those of the whole project; tests/cpp/standalone has trees of its own."""
    caches = [*_ROOT.glob("build*/CMakeCache.txt"), *_ROOT.glob("build/*/CMakeCache.txt")]
    line = "CMAKE_PROJECT_NAME:STATIC=pronk\n"
    return [cache.parent for cache in caches if line in cache.read_text(encoding="utf-8")]


def _run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=240,  # a guard against hangs
        check=False,
    )


def _list_cases(program: Path | None) -> list[str]:
    if program is None:
        return []
    done = _run(program, "--list")
    if done.returncode != 0:
        raise RuntimeError(f"{program} --list: exit code {done.returncode}\n{done.stdout}")
    return done.stdout.split()


_PROGRAM = _find_program()
_CASES = _list_cases(_PROGRAM)


def test_program_was_built() -> None:
    """Without this, a program that is missing or empty would look like success."""
    if _PROGRAM is None and not _build_trees():
        pytest.skip("no build tree: the C++ tests are part of a source build")
    assert _PROGRAM is not None, (
        "pronk_tests: got none in any build tree, expected one, "
        "build with -DPRONK_BUILD_TESTS=ON or name it in PRONK_CPP_TESTS"
    )
    assert _CASES, f"{_PROGRAM}: got no tests"


if _PROGRAM is not None:

    @pytest.mark.parametrize("case", _CASES)
    def test_cpp(case: str, tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
        assert _PROGRAM is not None
        # Models of every kind of memory, which the program cannot write itself.
        paths = [tiny(kind) for kind in (*MEMORY_KINDS, "encoder")]
        monkeypatch.setenv("PRONK_TINY_DIR", str(paths[0].parent))
        done = _run(_PROGRAM, "--run", case)
        if done.returncode != 0:
            pytest.fail(f"exit code {done.returncode}\n{done.stdout}", pytrace=False)
