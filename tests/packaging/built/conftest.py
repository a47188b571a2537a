"""The distributions, built once for all tests, and an environment with the wheel installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from built.installation import BUILD_SECONDS, PROJECT, Environment, run

# The interpreter of this environment, with its cmake and ninja.
BUILD = [sys.executable, "-m", "build", "--no-isolation"]
BUILD_PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep these tests out of a plain run, and allow for the compiler's time."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.packaging)
            item.add_marker(pytest.mark.timeout(BUILD_SECONDS + 300))


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, built from this checkout."""
    directory = tmp_path_factory.mktemp("sdist")
    run(*BUILD, "--sdist", "--outdir", directory, PROJECT, cwd=directory, PATH=BUILD_PATH)
    (path,) = directory.iterdir()
    return path


@pytest.fixture(scope="session")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked: no git data, no submodule, no build tree."""
    directory = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(directory)
    (path,) = directory.iterdir()
    return path


@pytest.fixture(scope="session")
def wheel(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from nothing but the source distribution, without a network."""
    directory = tmp_path_factory.mktemp("wheel")
    build = [*BUILD, "--wheel", "--outdir", directory, unpacked]
    offline = {"PIP_NO_INDEX": "1", "GIT_ALLOW_PROTOCOL": "none", "PATH": BUILD_PATH}
    run(*_without_network(), *build, cwd=directory, **offline)
    (path,) = directory.iterdir()
    return path


def _without_network() -> list[str]:
    """A prefix that runs a command in a network of its own, where the machine allows that."""
    prefix = ["unshare", "--net", "--map-root-user"]
    if shutil.which("unshare") is None:
        return []
    return prefix if subprocess.run([*prefix, "true"], check=False).returncode == 0 else []


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel, pytest, and what other projects build with."""
    environment = Environment.create(tmp_path_factory.mktemp("installed") / "venv")
    tools = ["cmake", "ninja", "scikit-build-core", "numpy", "pytest", "pytest-timeout"]
    # Not pronk's release of nanobind: see tests/downstream/pyproject.toml.
    environment.install(wheel, "nanobind==3.0.1", *tools)
    return environment


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model."""
    code = """
import pathlib, sys
from tiny_models import tiny_model
print(tiny_model("plain", pathlib.Path(sys.argv[1])))
"""
    directory = tmp_path_factory.mktemp("model")
    search = {"PYTHONPATH": str(PROJECT / "tests/python")}
    said = run(sys.executable, "-c", code, directory, cwd=directory, **search)
    return Path(said.splitlines()[-1])
