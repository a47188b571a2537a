"""tools/vendor.py against a tiny repository and a tiny source distribution; no network is used."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[2]
SUBMODULE = "vendor/llama.cpp"


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pronk_tools_vendor", PROJECT / "tools/vendor.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


tool = load_tool()


def git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=tester", "-c", "user.email=tester@example.invalid")
    command = ["git", *identity, *arguments]
    return subprocess.run(
        command, cwd=directory, check=True, capture_output=True, text=True
    ).stdout.strip()


def commit_all(repository: Path, message: str) -> str:
    git(repository, "add", "--all", "--force")
    git(repository, "commit", "--quiet", "--message", message)
    return git(repository, "rev-parse", "HEAD")


@dataclass
class World:
    """A project that wants a submodule, the repository it is in, and a package that carries it."""

    project: Path
    upstream: Path
    archive: Path
    pin: Any

    @property
    def tree(self) -> Path:
        return self.project / SUBMODULE

    def cut_off(self) -> None:
        """The repository cannot be reached any more."""
        self.upstream.rename(self.upstream.with_name("elsewhere"))

    def run(self, **options: Any) -> None:
        tool.vendor(self.project, self.pin, **options)

    def assert_filled(self) -> None:
        assert git(self.tree, "rev-parse", "HEAD") == self.pin.commit
        assert git(self.tree, "status", "--porcelain") == ""
        assert (self.tree / "CMakeLists.txt").read_text() == "project(tiny)\n"
        assert (self.tree / "build.sh").stat().st_mode & 0o100
        leftovers = [path.name for path in self.tree.parent.iterdir()]
        assert sorted(leftovers) == ["llama.cpp"]


BACKEND = """
import pathlib

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    info = pathlib.Path(folder, "tiny_carrier-1.0.dist-info")
    info.mkdir()
    metadata = ("Metadata-Version: 2.1", "Name: tiny-carrier", "Version: 1.0", "")
    info.joinpath("METADATA").write_text("\\n".join(metadata))
    info.joinpath("WHEEL").write_text("Wheel-Version: 1.0\\nTag: py3-none-any\\n")
    return info.name

def build_wheel(folder, config_settings=None, metadata_directory=None):
    raise RuntimeError("nothing may be built")
"""


def make_archive(folder: Path, upstream: Path) -> Path:
    """A source distribution that carries the tree and, beside it, its git data."""
    top = folder / "tiny_carrier-1.0"
    tree, modules = top / SUBMODULE, top / ".git/modules" / SUBMODULE
    shutil.copytree(upstream, tree)
    modules.parent.mkdir(parents=True)
    (tree / ".git").rename(modules)
    (tree / ".git").write_text("gitdir: ../../.git/modules/vendor/llama.cpp\n")
    with (modules / "config").open("a") as config:
        config.write(
            "[core]\n\tworktree = ../../../../vendor/llama.cpp\n[packager]\n\tsecret = 1\n"
        )
    (top / "backend.py").write_text(BACKEND)
    (top / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "tiny-carrier"\nversion = "1.0"\n'
    )
    (top / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: tiny-carrier\nVersion: 1.0\n")
    archive = folder / "tiny_carrier-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(top, top.name)
    return archive


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    # git refuses submodules from local folders unless told; the tester's settings do not count.
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    (tmp_path / "gitconfig").write_text('[protocol "file"]\n\tallow = always\n')
    # Whatever pip is asked for comes from here or from nowhere.
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "carrier"))

    upstream = tmp_path / "upstream"
    upstream.mkdir()
    git(upstream, "init", "--quiet")
    (upstream / "CMakeLists.txt").write_text("project(tiny)\n")
    (upstream / "build.sh").write_text("#!/bin/sh\n")
    (upstream / "build.sh").chmod(0o755)
    commit = commit_all(upstream, "first")
    git(upstream, "tag", "b1")

    (tmp_path / "carrier").mkdir()
    archive = make_archive(tmp_path / "carrier", upstream)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    # file:// keeps git from hard-linking, and so from ignoring --depth.
    pin = tool.Pin(upstream.as_uri(), "b1", commit, "tiny-carrier", "1.0", digest)

    origin = tmp_path / "origin"
    origin.mkdir()
    git(origin, "init", "--quiet")
    (origin / ".gitmodules").write_text(
        f'[submodule "{SUBMODULE}"]\n\tpath = {SUBMODULE}\n\turl = {upstream.as_uri()}\n'
    )
    git(origin, "add", ".gitmodules")
    git(origin, "update-index", "--add", "--cacheinfo", f"160000,{commit},{SUBMODULE}")
    git(origin, "commit", "--quiet", "--message", "project")
    project = tmp_path / "project"
    git(tmp_path, "clone", "--quiet", str(origin), str(project))
    assert list((project / SUBMODULE).iterdir()) == []
    return World(project, upstream, archive, pin)


def without_git(world: World) -> None:
    """Turns the project into what a source distribution unpacks to."""
    shutil.rmtree(world.project / ".git")


# ---- the two ways ------------------------------------------------------------------------------


def test_repository_comes_first(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.archive.unlink()
    world.run()
    world.assert_filled()
    assert capsys.readouterr().out.splitlines()[-1].endswith("from the repository")
    assert git(world.project, "status", "--porcelain") == ""


def test_package_where_the_repository_cannot_be_had(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.cut_off()
    world.run()
    world.assert_filled()
    lines = capsys.readouterr().out.splitlines()
    assert any("not from the repository: git ls-remote" in line for line in lines)
    assert lines[-1].endswith("from tiny-carrier 1.0")


def test_git_sees_an_ordinary_submodule(world: World) -> None:
    world.run(archive=world.archive)
    world.assert_filled()
    assert git(world.project, "status", "--porcelain") == ""
    assert git(world.project, "submodule", "status").startswith(world.pin.commit)
    assert (world.tree / ".git").is_file()
    assert "secret" not in git(world.tree, "config", "--list", "--local")
    git(world.project, "submodule", "update", "--init", "--", SUBMODULE)
    world.assert_filled()


def test_project_that_is_no_checkout(world: World) -> None:
    without_git(world)
    world.run(archive=world.archive)
    world.assert_filled()


def test_project_that_is_no_checkout_clones_first(world: World) -> None:
    without_git(world)
    world.archive.unlink()
    world.run()
    world.assert_filled()


def test_project_inside_another_repository(world: World) -> None:
    without_git(world)
    git(world.project.parent, "init", "--quiet")
    world.run(archive=world.archive)
    world.assert_filled()


def test_neither_way(world: World) -> None:
    world.cut_off()
    world.archive.unlink()
    with pytest.raises(tool.VendorError, match=r"pip download: .*tiny-carrier.*--archive FILE"):
        world.run()
    assert list(world.tree.iterdir()) == []
    assert [path.name for path in world.tree.parent.iterdir()] == ["llama.cpp"]


# ---- again -------------------------------------------------------------------------------------


def test_second_run_changes_nothing(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.run(archive=world.archive)
    capsys.readouterr()
    world.cut_off()
    world.archive.unlink()
    index = git(world.tree, "rev-parse", "--git-path", "index")
    before = (world.tree / index).stat().st_mtime_ns
    world.run()
    assert (world.tree / index).stat().st_mtime_ns == before
    world.assert_filled()
    assert capsys.readouterr().out == f"vendor: {SUBMODULE} is in place at {world.pin}\n"


def test_source_distribution_is_taken_as_it_is(world: World) -> None:
    without_git(world)
    (world.tree / "CMakeLists.txt").write_text("project(tiny)\n")
    world.cut_off()
    world.archive.unlink()
    world.run()


def test_interrupted_update_is_mended(world: World) -> None:
    world.run()
    for entry in ("CMakeLists.txt", "build.sh"):
        (world.tree / entry).unlink()
    (world.tree / ".git").write_text("gitdir: ../../.git/modules/nowhere\n")
    world.cut_off()
    world.run(archive=world.archive)
    world.assert_filled()


def test_moved_pin(world: World) -> None:
    world.run()
    (world.upstream / "CMakeLists.txt").write_text("project(newer)\n")
    commit = commit_all(world.upstream, "second")
    git(world.upstream, "tag", "b2")
    git(world.project, "update-index", "--cacheinfo", f"160000,{commit},{SUBMODULE}")
    world.pin = replace(world.pin, tag="b2", commit=commit)
    world.run()
    assert git(world.tree, "rev-parse", "HEAD") == commit
    assert (world.tree / "CMakeLists.txt").read_text() == "project(newer)\n"


# ---- what is refused ---------------------------------------------------------------------------


def test_wrong_sha256(world: World) -> None:
    with world.archive.open("ab") as file:
        file.write(b"\0")
    with pytest.raises(tool.VendorError, match=f"got sha256 .*, expected {world.pin.sha256}"):
        world.run(archive=world.archive)
    assert list(world.tree.iterdir()) == []


def test_pip_checks_the_sha256_too(world: World) -> None:
    world.cut_off()
    with world.archive.open("ab") as file:
        file.write(b"\0")
    with pytest.raises(tool.VendorError, match="pip download"):
        world.run()
    assert list(world.tree.iterdir()) == []


def test_archive_with_another_commit(world: World) -> None:
    without_git(world)
    world.pin = replace(world.pin, commit="0123456789" * 4)
    with pytest.raises(tool.VendorError, match=r"as fetched: got commit .*, expected b1"):
        world.run(archive=world.archive)
    assert list(world.tree.iterdir()) == []


def test_archive_with_a_changed_file(world: World, tmp_path: Path) -> None:
    (world.upstream / "CMakeLists.txt").write_text("project(tampered)\n")
    (tmp_path / "tampered").mkdir()
    archive = make_archive(tmp_path / "tampered", world.upstream)
    world.pin = replace(world.pin, sha256=hashlib.sha256(archive.read_bytes()).hexdigest())
    with pytest.raises(tool.VendorError, match="as fetched: got 1 changed files"):
        world.run(archive=archive)
    assert list(world.tree.iterdir()) == []


def test_archive_without_the_tree(world: World, tmp_path: Path) -> None:
    archive = tmp_path / "empty.tar.gz"
    with tarfile.open(archive, "w:gz"):
        pass
    world.pin = replace(world.pin, sha256=hashlib.sha256(archive.read_bytes()).hexdigest())
    with pytest.raises(tool.VendorError, match="with git data"):
        world.run(archive=archive)


def test_archive_that_is_missing(world: World, tmp_path: Path) -> None:
    with pytest.raises(tool.VendorError, match="nothing-here: got No such file"):
        world.run(archive=tmp_path / "nothing-here")


def test_recorded_commit_that_differs_from_the_pin(world: World) -> None:
    git(world.project, "update-index", "--cacheinfo", f"160000,{'12' * 20},{SUBMODULE}")
    with pytest.raises(tool.VendorError, match=r"got 121212121212 recorded in git, expected b1"):
        world.run(archive=world.archive)


def test_own_changes_are_kept_unless_forced(world: World) -> None:
    world.run()
    (world.tree / "CMakeLists.txt").write_text("project(mine)\n")
    with pytest.raises(tool.VendorError, match=r"got 1 changed files .*--force"):
        world.run()
    world.run(allow_changes=True)
    assert (world.tree / "CMakeLists.txt").read_text() == "project(mine)\n"
    world.cut_off()
    world.run(force=True)
    world.assert_filled()
    assert git(world.project, "status", "--porcelain") == ""


def test_own_commit_is_kept_unless_forced(world: World) -> None:
    world.run(archive=world.archive)
    (world.tree / "CMakeLists.txt").write_text("project(mine)\n")
    mine = commit_all(world.tree, "mine")
    world.cut_off()
    with pytest.raises(tool.VendorError, match=r"got another commit, expected b1"):
        world.run()
    assert git(world.tree, "rev-parse", "HEAD") == mine
    world.run(archive=world.archive, force=True)
    world.assert_filled()


def test_files_of_unknown_origin_in_a_checkout(world: World) -> None:
    (world.tree / "CMakeLists.txt").write_text("project(tiny)\n")
    with pytest.raises(tool.VendorError, match=r"got no git data, .*--force"):
        world.run()
    world.run(force=True)
    world.assert_filled()


# ---- the pin -----------------------------------------------------------------------------------


def test_pin_of_this_project() -> None:
    pin = tool.Pin.read(PROJECT / "vendor/llama.cpp.pin")
    assert len(pin.commit) == 40
    assert len(pin.sha256) == 64
    assert int(pin.tag.removeprefix("b")) > 0
    assert f"url = {pin.repository}\n" in (PROJECT / ".gitmodules").read_text()


@pytest.mark.parametrize("text", ["", "commit abc\n", "commit\n", "colour blue\ntag b1\n"])
def test_pin_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pin"
    path.write_text(text)
    with pytest.raises(tool.VendorError, match="expected"):
        tool.Pin.read(path)


def test_pin_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(tool.VendorError, match=r"got No such file .*, expected the pin file"):
        tool.Pin.read(tmp_path / "pin")


# ---- child processes ---------------------------------------------------------------------------


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    # The inner process keeps the pipe open: if it lived on, the call would not return.
    command = ["sh", "-c", "sleep 600 & sleep 600"]
    with pytest.raises(tool.VendorError, match=r"sleeper: got no end within 0.2 s"):
        tool.run("sleeper", command, cwd=tmp_path, timeout=0.2)


def test_git_never_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    environment = tool.child_environment()
    assert environment["GIT_TERMINAL_PROMPT"] == "0"
    assert "GIT_DIR" not in environment
