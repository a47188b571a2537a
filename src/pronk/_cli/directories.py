"""``pronk --cmake-dir`` and ``--include-dir``: what C++ projects that build against pronk need."""

from __future__ import annotations

from pathlib import Path

from pronk import _core


def include_dir() -> Path:
    """Return the directory to which ``#include "pronk/pronk.h"`` is relative."""
    return _installed() / "include"


def cmake_dir() -> Path:
    """Return the directory of ``pronkConfig.cmake``, which CMake takes as ``pronk_DIR``."""
    return _installed() / "lib" / "cmake" / "pronk"


def _installed() -> Path:
    # Beside the extension: in an editable install the Python files lie elsewhere.
    return Path(_core.__file__).resolve().parent
