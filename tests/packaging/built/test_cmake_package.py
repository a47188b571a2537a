"""The CMake package in the wheel: whom it lets in, and what it says to others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from built.installation import PROJECT, Environment

HEADER = (PROJECT / "cpp/include/pronk/version.h").read_text(encoding="utf-8")
MAJOR, MINOR, PATCH = map(int, re.findall(r'PRONK_VERSION "(\d+)\.(\d+)\.(\d+)"', HEADER)[0])


def configure(environment: Environment, folder: Path, text: str, *options: str) -> str:
    """What CMake says to a project, whether it likes it or not."""
    (folder / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.26)\n{text}")
    directory = environment.run("python", "-m", "pronk", "--cmake-dir").strip()
    code = "import subprocess, sys; subprocess.run(sys.argv[1:], stderr=subprocess.STDOUT)"
    command = ["cmake", "-S", folder, "-B", folder / "build", "-G", "Ninja"]
    return environment.run("python", "-c", code, *command, f"-Dpronk_DIR={directory}", *options)


@pytest.mark.parametrize(
    ("version", "fits"),
    [
        (f"{MAJOR}.{MINOR}", True),
        (f"{MAJOR}.{MINOR}.{PATCH}", True),
        (f"{MAJOR}.{MINOR}.{PATCH + 1}", False),
        (f"{MAJOR}.{MINOR + 1}", False),
        (f"{MAJOR + 1}.0", False),
    ],
)
def test_another_minor_version_does_not_fit(
    installed: Environment, tmp_path: Path, version: str, fits: bool
) -> None:
    text = f"project(p LANGUAGES CXX)\nfind_package(pronk {version} CONFIG QUIET)\n"
    text += 'message(STATUS "found: ${pronk_FOUND}, asked for ${pronk_VERSION}")\n'
    assert f"found: {int(fits)}" in configure(installed, tmp_path, text)


@pytest.mark.parametrize("nanobind", ["", "2.15.0"])
def test_a_nanobind_without_split_mode_is_refused(
    installed: Environment, tmp_path: Path, nanobind: str
) -> None:
    other = Environment.create(tmp_path / "venv")
    if nanobind:
        other.install(f"nanobind=={nanobind}")
    (tmp_path / "x.cpp").write_text("")
    text = "project(p LANGUAGES CXX)\nfind_package(pronk CONFIG REQUIRED)\n"
    text += "pronk_add_extension(x x.cpp)\n"
    said = configure(installed, tmp_path, text, f"-DPython_EXECUTABLE={other.bin / 'python'}")
    assert f"got nanobind '{nanobind}', expected 3.0 or newer" in " ".join(said.split())


@pytest.mark.parametrize(
    ("package", "rpath"),
    [("", "/../pronk/lib"), ("PACKAGE a.b", "/../../pronk/lib"), ("PACKAGE .", "/pronk/lib")],
)
def test_where_an_extension_looks_for_libpronk(
    installed: Environment, tmp_path: Path, package: str, rpath: str
) -> None:
    (tmp_path / "x.cpp").write_text("")
    text = "project(p LANGUAGES CXX)\nfind_package(pronk CONFIG REQUIRED)\n"
    text += f"pronk_add_extension(x {package} x.cpp)\n"
    text += 'get_target_property(rpath x INSTALL_RPATH)\nmessage(STATUS "rpath: ${rpath}")\n'
    python = f"-DPython_EXECUTABLE={installed.bin / 'python'}"
    said = configure(installed, tmp_path, text, python)
    assert re.search(rf"rpath: (\$ORIGIN|@loader_path){re.escape(rpath)}\n", said), said
