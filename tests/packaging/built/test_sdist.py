"""What is in the source distribution: all that a build needs, nothing that a build left behind."""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath

import pytest

from built.installation import PROJECT, run


@pytest.fixture(scope="module")
def files(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        links = [member.name for member in archive if not (member.isfile() or member.isdir())]
        assert links == []
        names = [PurePosixPath(member.name) for member in archive if member.isfile()]
    return {str(PurePosixPath(*name.parts[1:])) for name in names}


def tracked(*arguments: str, directory: Path = PROJECT) -> set[str]:
    listed = run("git", "-C", directory, "ls-files", "-z", *arguments, cwd=PROJECT)
    return set(filter(None, listed.split("\0")))


@pytest.fixture(scope="module")
def in_git() -> set[str]:
    if not (PROJECT / ".git").exists():
        pytest.skip("needs a git checkout to compare with")
    return tracked() | tracked("--others", "--exclude-standard")


def test_every_file_of_the_project_is_there(files: set[str], in_git: set[str]) -> None:
    ours = {name for name in in_git if name != "vendor/llama.cpp"}
    # Of use in a checkout alone.
    settings = (".ci/", ".github/", ".clang-format", ".editorconfig", ".gitignore")
    assert {name for name in ours if not name.startswith(settings)} - files == set()


def test_nothing_else_is_there(files: set[str], in_git: set[str]) -> None:
    tree = PROJECT / "vendor/llama.cpp"
    vendored = {f"vendor/llama.cpp/{name}" for name in tracked(directory=tree)}
    assert files - in_git - vendored - {"PKG-INFO"} == set()


def test_of_llama_cpp_only_what_is_compiled(files: set[str]) -> None:
    """Its models, tools and tests are many times the size of its sources."""
    paths = [PurePosixPath(name).parts for name in files]
    folders = {parts[2] for parts in paths if parts[:2] == ("vendor", "llama.cpp")}
    assert {"CMakeLists.txt", "LICENSE", "ggml", "src", "include", "common"} <= folders
    assert folders & {"models", "tools", "tests", "examples", "gguf-py", "docs", ".git"} == set()


def test_its_size(sdist: Path) -> None:
    size = sdist.stat().st_size
    print(f"{sdist.name}: {size / 1e6:.2f} MB")
    assert size < 20e6
