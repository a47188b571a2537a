"""Builds llama-batched-bench and llama-server from vendor/llama.cpp, with pronk's own flags."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from benchmarks.cmake import BuildError, build
from benchmarks.settings import PROJECT, Settings

TARGETS = ("llama-batched-bench", "llama-server")
_REPORTED = ("CMAKE_BUILD_TYPE", "GGML_NATIVE", "GGML_OPENMP", "GGML_CUDA", "GGML_METAL")


class PeerError(Exception):
    """A peer could not be built or does not run."""


def program(settings: Settings, name: str) -> Path:
    """Return the path of a program of llama.cpp, built first where that has not been done."""
    tree = _tree(settings.openmp)
    path = tree / "bin" / name
    if not path.exists():
        settings.say(f"building {' and '.join(TARGETS)}, which takes a while the first time")
        _build(tree, settings.openmp)
    return path


def flags(settings: Settings) -> dict[str, str]:
    """Return how the programs were built; empty before they are."""
    cache_file = _tree(settings.openmp) / "CMakeCache.txt"
    if not cache_file.exists():
        return {}
    entries = re.findall(r"^(\w+):\w+=(.*)$", cache_file.read_text(encoding="utf-8"), re.MULTILINE)
    return {key: value for key, value in entries if key in _REPORTED}


def _tree(openmp: bool) -> Path:
    return PROJECT / "build" / ("peers" if openmp else "peers-no-openmp")


@cache
def _build(tree: Path, openmp: bool) -> None:
    options = [f"-DGGML_OPENMP={'ON' if openmp else 'OFF'}"]
    try:
        build(PROJECT / "benchmarks" / "peers", tree, targets=TARGETS, options=options)
    except BuildError as error:
        raise PeerError(f"{error}, or run with --no-peers") from error
