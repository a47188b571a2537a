"""Versions that have to be stated in two places are the same in both."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PYPROJECT = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")


def group(name: str) -> str:
    found = re.search(rf"^{name} = \[\n(.*?)^\]", PYPROJECT, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def test_make_builds_with_what_pip_builds_with() -> None:
    found = re.search(r"^requires = \[(.*)\]", PYPROJECT, re.MULTILINE)
    assert found
    for requirement in found[1].split(", "):
        assert requirement in group("build")


def test_pre_commit_runs_the_linters_of_make() -> None:
    text = (PROJECT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    pins = re.findall(r"additional_dependencies: \[(.+)\]", text)
    assert len(pins) == 3
    for pin in pins:
        assert f'"{pin}"' in group("lint")


def test_the_version_of_the_package_is_that_of_the_header() -> None:
    header = (PROJECT / "cpp/include/pronk/version.h").read_text(encoding="utf-8")
    assert f'#define PRONK_VERSION "{version("pronk")}"' in header
    major, minor, patch = version("pronk").split(".")
    assert f"#define PRONK_VERSION_MAJOR {major}\n" in header
    assert f"#define PRONK_VERSION_MINOR {minor}\n" in header
    assert f"#define PRONK_VERSION_PATCH {patch}\n" in header
