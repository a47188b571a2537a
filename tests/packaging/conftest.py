"""A plain run does without what only the tests of built distributions need."""

from __future__ import annotations

from pathlib import Path

import pytest

BUILT = Path(__file__).parent / "built"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave them out before they are imported, unless they are asked for."""
    if collection_path == BUILT and "not packaging" in config.option.markexpr:
        return True
    return None
