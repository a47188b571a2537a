"""`load(probe=True)`: a file on which llama.cpp ends the process ends a child instead."""

from __future__ import annotations

import multiprocessing.spawn
import os
import signal
import threading
from pathlib import Path

import pytest
from conftest import wait_until
from fixtures_models import Tiny

import pronk


def replace_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let a shell script run in the place of the child that tries the file."""
    program = tmp_path / "child"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(multiprocessing.spawn, "_python_exe", str(program))


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_the_death_of_the_child_is_an_error(
    tiny_plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No file is known that passes all checks and ends the process: this child only does as if.
    script = "echo 'x.cpp:1: GGML_ASSERT(x) failed' >&2\nkill -ABRT $$"
    replace_child(tmp_path, monkeypatch, script)
    with pytest.raises(pronk.ModelLoadError, match=r"SIGABRT \(.*GGML_ASSERT") as caught:
        pronk.InferenceEngine.load(tiny_plain, probe=True)
    assert caught.value.filename == tiny_plain


def test_sound_files_load_as_ever(tiny: Tiny) -> None:
    for kind in ("plain", "recurrent"):
        engine = pronk.InferenceEngine.load(tiny(kind), probe=True, n_gpu_layers=0)  # type: ignore[arg-type]
        assert engine.memory_kind == kind
    # What cannot generate can be tried, too.
    assert pronk.InferenceEngine.load(tiny("encoder"), probe=True).memory_kind == "none"
    engine = pronk.InferenceEngine.load(tiny("vocabulary"), probe=True, vocab_only=True)
    assert engine.tokenize("a", add_special=False)


def test_errors_are_those_of_the_load(tmp_path: Path) -> None:
    path = tmp_path / "text.gguf"
    path.write_text("no model")
    messages = []
    for probe in (False, True):
        with pytest.raises(pronk.ModelLoadError) as caught:
            pronk.InferenceEngine.load(path, probe=probe)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_a_child_that_cannot_start_is_an_error(
    tiny_plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for executable in (str(tmp_path / "none"), "/bin/false", ""):
        monkeypatch.setattr(multiprocessing.spawn, "_python_exe", executable)
        with pytest.raises(pronk.ModelLoadError, match=r"executable|starting|exit code 1"):
            pronk.InferenceEngine.load(tiny_plain, probe=True)


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_a_child_that_was_killed_ran_out_of_memory(
    tiny_plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_child(tmp_path, monkeypatch, "kill -KILL $$")
    with pytest.raises(pronk.InsufficientMemoryError, match="killed"):
        pronk.InferenceEngine.load(tiny_plain, probe=True)


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_ctrl_c_ends_the_child_too(
    tiny_plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "pid"
    program = tmp_path / "hangs"
    program.write_text(f"#!/bin/sh\necho $$ > {note}.new; mv {note}.new {note}\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr(multiprocessing.spawn, "_python_exe", str(program))

    def interrupt() -> None:
        wait_until(note.exists)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        pronk.InferenceEngine.load(tiny_plain, probe=True)
    thread.join()
    pid = int(note.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
