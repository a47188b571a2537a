"""Other projects build against the installed wheel: nanobind extensions and plain C++ programs."""

from __future__ import annotations

import shutil
from pathlib import Path

from built.installation import PROJECT, Environment


def install_project(environment: Environment, source: Path, copy: Path) -> None:
    """Install a project from a copy, so that its build leaves nothing in this one."""
    shutil.copytree(source, copy)
    environment.install("--no-build-isolation", "--no-deps", copy)


def test_a_package_that_embeds_pronk(installed: Environment, tmp_path: Path) -> None:
    copy = tmp_path / "downstream"
    install_project(installed, PROJECT / "tests/downstream", copy)
    print(installed.run("python", "-m", "pytest", cwd=copy))
