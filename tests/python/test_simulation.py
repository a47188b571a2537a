"""The whole scheduler without a model: a seeded simulation, and many threads in real time."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def find(name: str) -> Path:
    """The program: beside PRONK_CPP_TESTS if that is set, or else the newest in a build tree."""
    named = os.environ.get("PRONK_CPP_TESTS")
    if named:
        return Path(named).with_name(name).resolve(strict=True)
    trees = [
        cache.parent
        for pattern in ("build*", "build/*")
        for cache in ROOT.glob(f"{pattern}/CMakeCache.txt")
    ]
    built = [
        path
        for tree in trees
        for path in (tree / "tests" / "cpp" / name, tree / name)
        if path.is_file()
    ]
    if not trees:
        pytest.skip("no build tree: the C++ tests are part of a source build")
    assert built, (
        f"{name}: got none in any build tree, expected one, build with -DPRONK_BUILD_TESTS=ON"
    )
    return max(built, key=lambda path: path.stat().st_mtime)


def run(name: str, **options: int) -> str:
    """Run a program that has to succeed; return what it printed."""
    command = [str(find(name))]
    for option, value in options.items():
        command += [f"--{option}", str(value)]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}"
    return done.stdout


def fresh_seed() -> int:
    """A seed that no run had before; a failure prints how to repeat it."""
    return time.time_ns() // 1000


def test_simulation() -> None:
    """A million steps."""
    run("pronk_simulation", seed=fresh_seed(), seeds=200, steps=5000)


def test_simulation_repeats_exactly() -> None:
    def once() -> list[str]:
        lines = run("pronk_simulation", seed=7, seeds=3, steps=3000).splitlines()
        return lines[1:]  # the first tells the speed

    assert once() == once()


def test_stress() -> None:
    run("pronk_stress", seed=fresh_seed(), rounds=60)
