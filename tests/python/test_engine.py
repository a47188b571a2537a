"""Loading models: what is reported, what is refused, and that a load can be watched and stopped."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from pathlib import Path

import pytest
from conftest import wait_until
from fixtures_models import Tiny

import pronk


@pytest.fixture(scope="module")
def engine(tiny_plain: Path) -> pronk.InferenceEngine:
    return pronk.InferenceEngine.load(tiny_plain, n_gpu_layers=0)


def test_facts(engine: pronk.InferenceEngine, tiny_plain: Path) -> None:
    assert engine.path == str(tiny_plain)
    assert engine.architecture == "llama"
    assert engine.metadata["general.architecture"] == "llama"
    assert engine.memory_kind == "plain"
    assert engine.n_gpu_layers == 0
    assert engine.size > 0
    assert engine.n_params > 0
    assert engine.n_vocab > 0
    assert engine.n_ctx_train > 0
    assert engine.n_layer > 0
    assert engine.description in repr(engine)
    assert [device.kind for device in engine.devices] == ["cpu"]


@pytest.mark.parametrize(
    ("kind", "memory_kind"),
    [
        ("plain", "plain"),
        ("swa", "sliding_window"),
        ("recurrent", "recurrent"),
        ("hybrid", "hybrid"),
    ],
)
def test_memory_kinds(tiny: Tiny, kind: str, memory_kind: str) -> None:
    engine = pronk.InferenceEngine.load(tiny(kind))  # type: ignore[arg-type]
    assert engine.memory_kind == memory_kind


def test_devices() -> None:
    devices = pronk.devices()
    assert devices[-1].kind == "cpu"
    assert devices[-1].memory_total > 0
    assert "pronk.Device(name=" in repr(devices[-1])


def test_tokens(engine: pronk.InferenceEngine) -> None:
    text = "Once upon a time, \N{GRINNING FACE}\0 it was."
    tokens = engine.tokenize(text, add_special=False)
    assert all(0 <= token < engine.n_vocab for token in tokens)
    assert engine.detokenize(tokens) == text
    assert engine.tokenize("", add_special=False) == []
    with_special = engine.tokenize(text)
    assert with_special[-len(tokens) :] == tokens
    assert (with_special[0] == engine.bos) == engine.add_bos


def test_tokenizing_lets_other_threads_run(engine: pronk.InferenceEngine) -> None:
    text = "ab \n" * 50_000
    expected = engine.tokenize(text)
    results: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: results.append(engine.tokenize(text))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


@pytest.mark.parametrize("kind", [str, Path, os.fsencode], ids=["str", "Path", "bytes"])
def test_kinds_of_path(tiny_plain: Path, kind: type) -> None:
    assert pronk.InferenceEngine.load(kind(tiny_plain)).path == str(tiny_plain)


def test_path_that_is_not_ascii(tiny_plain: Path, tmp_path: Path) -> None:
    path = tmp_path / "m\N{LATIN SMALL LETTER O WITH DIAERESIS}del \N{LLAMA}.gguf"
    path.write_bytes(tiny_plain.read_bytes())
    assert pronk.InferenceEngine.load(path).path == str(path)


def test_vocabulary_only(tiny_plain: Path) -> None:
    engine = pronk.InferenceEngine.load(tiny_plain, vocab_only=True)
    assert engine.detokenize(engine.tokenize("abc", add_special=False)) == "abc"
    with pytest.raises(pronk.Error, match="vocab"):
        pronk.InferenceScheduler(1).init_pool(engine, 64)


def test_options(tiny_plain: Path) -> None:
    engine = pronk.InferenceEngine.load(tiny_plain, use_mmap=False, check_tensors=True)
    assert engine.n_vocab > 0


@pytest.mark.parametrize(
    "kind", ["missing", "directory", "empty", "text", "truncated", "header only", "unreadable"]
)
def test_files_that_are_no_model(tiny_plain: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "bad.gguf"
    data = tiny_plain.read_bytes()
    expected_errno: int | None = None
    if kind == "missing":
        expected_errno = errno.ENOENT
    elif kind == "directory":
        path.mkdir()
        expected_errno = errno.EISDIR
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("Once upon a time.\n" * 100)
    elif kind == "truncated":
        path.write_bytes(data[: len(data) * 3 // 4])
    elif kind == "header only":
        path.write_bytes(data[:24])
    else:
        path.write_bytes(data)
        path.chmod(0)
        expected_errno = errno.EACCES
        if os.access(path, os.R_OK):
            pytest.skip("this user may read everything")
    with pytest.raises(pronk.ModelLoadError, match=r"bad.gguf") as caught:
        pronk.InferenceEngine.load(path)
    assert isinstance(caught.value, OSError)
    assert isinstance(caught.value, ValueError)
    assert caught.value.filename == path
    if expected_errno is not None:
        assert caught.value.errno == expected_errno


def test_progress_function(tiny_plain: Path) -> None:
    seen: list[tuple[float, threading.Thread]] = []
    engine = pronk.InferenceEngine.load(
        tiny_plain, progress=lambda fraction: seen.append((fraction, threading.current_thread()))
    )
    assert engine.n_vocab > 0
    fractions = [fraction for fraction, _ in seen]
    assert fractions == sorted(fractions)
    assert fractions[0] >= 0
    assert fractions[-1] == 1.0
    assert {thread for _, thread in seen} == {threading.current_thread()}


@pytest.mark.parametrize("value", [True, False, None])
def test_progress_is_silent_where_there_is_no_terminal(
    tiny_plain: Path, capfd: pytest.CaptureFixture[str], value: bool | None
) -> None:
    pronk.InferenceEngine.load(tiny_plain, progress=value)
    assert capfd.readouterr() == ("", "")


def test_progress_cancels(tiny_plain: Path) -> None:
    with pytest.raises(pronk.ModelLoadError, match="cancel"):
        pronk.InferenceEngine.load(tiny_plain, progress=lambda fraction: False)
    # Only False cancels: a function that returns nothing does not.
    assert pronk.InferenceEngine.load(tiny_plain, progress=lambda fraction: 0).n_vocab


def test_what_progress_raises_arrives(tiny_plain: Path) -> None:
    def fail(fraction: float) -> None:
        raise LookupError("from progress")

    with pytest.raises(LookupError, match="from progress"):
        pronk.InferenceEngine.load(tiny_plain, progress=fail)


def test_loads_in_several_threads(tiny_plain: Path) -> None:
    engines: list[pronk.InferenceEngine] = []
    threads = [
        threading.Thread(target=lambda: engines.append(pronk.InferenceEngine.load(tiny_plain)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({engine.n_params for engine in engines}) == 1
    assert len(engines) == 4


def test_log_is_quiet_by_default(tiny_plain: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pronk.InferenceEngine.load(tiny_plain)
    assert capfd.readouterr() == ("", "")


def test_log_goes_to_logging(tiny_plain: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="pronk.llama"):
        pronk.InferenceEngine.load(tiny_plain)
    assert {record.name for record in caplog.records} == {"pronk.llama"}
    assert any("llama" in record.message for record in caplog.records)


def test_end_to_end(tiny_any: Path) -> None:
    engine = pronk.InferenceEngine.load(tiny_any)
    with pronk.InferenceScheduler(2, engine=engine, n_ctx=128) as scheduler:
        with scheduler.acquire() as permit:
            first = permit.generate("Once upon a time", max_tokens=16, temperature=0)
            text = "".join(first)
            assert text == first.result().text
        again = scheduler.generate("Once upon a time", max_tokens=16, temperature=0).result(60)
        assert again.tokens == first.result().tokens
        # Counted once the lane has settled, a moment after the result.
        wait_until(lambda: scheduler.statistics().completed == 2)


def test_an_ordinary_cancel_is_not_an_error_in_the_log(
    tiny_plain: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = pronk.InferenceEngine.load(str(tiny_plain))
    with (
        caplog.at_level(logging.INFO, logger="pronk.llama"),
        pronk.InferenceScheduler(1, engine=engine, n_ctx=2048, n_threads=1) as scheduler,
    ):
        for _ in range(20):
            generation = scheduler.generate([5] * 2000, max_tokens=1)
            while scheduler.statistics().running == 0 and not generation.done:
                time.sleep(0)
            generation.cancel()
            generation.result(30)
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
