"""Tries a model file in a process of its own, which may die of it.

llama.cpp asserts: a crafted or damaged file that passes every check of ours can still end the
process that loads it. Here that is a child, a fresh interpreter and no fork, and what is left of it
is an error.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from multiprocessing import spawn
from typing import Any

from pronk._errors import InsufficientMemoryError, ModelLoadError

_PROGRAM = """
import sys
sys.path[:] = sys.argv[1].split("\\n")
from pronk._probe import main
main()
"""


def check(path: str | bytes | os.PathLike[str], options: dict[str, Any]) -> None:
    """Load the file and generate a token in a child; return if that ended without its death.

    Whether the file can be loaded is not said here: the caller finds that out with the same error.

    Raises:
        pronk.ModelLoadError: The child died, or could not be started.
        pronk.InsufficientMemoryError: The system killed the child, as it does when memory is short.
    """
    name = os.fsdecode(path)
    executable = spawn.get_executable()  # an embedding program can set it
    if not executable:
        raise ModelLoadError(
            f"{name}: got no Python executable to try the file with, expected one, "
            "say multiprocessing.set_executable(...) or leave probe out",
            None,
            path,
        )
    words = [f"{key}={value}" for key, value in options.items()]
    command = [os.fsdecode(executable), "-c", _PROGRAM, "\n".join(sys.path), name, *words]
    try:
        code, said = _run(command)
    except (OSError, ValueError) as error:
        raise ModelLoadError(
            f"{name}: got '{error}' when starting a process to try the file with, expected one, "
            "leave probe out to load it at once",
            None,
            path,
        ) from error
    if code == 0:
        return
    if code == -getattr(signal, "SIGKILL", 9):
        raise InsufficientMemoryError(
            f"{name}: the process that tried it was killed, as the system does when memory is "
            "short, expected it to load, close other programs or use a smaller model"
        )
    raise ModelLoadError(
        f"{name}: the process that tried it ended with {_end_of(code)}"
        f"{_last_words(said)}, expected a model that llama.cpp can run, the file is damaged "
        "or of a kind that it does not know",
        None,
        path,
    )


def _run(command: list[str]) -> tuple[int, bytes]:
    """Return how the child ended and what it said. Ctrl-C ends it too, and is raised here."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {"GGML_NO_BACKTRACE": "1"},
    ) as process:
        try:
            _, said = process.communicate()
        except BaseException:
            # subprocess.run() would not wait for the end, and leave a zombie behind at times.
            process.kill()
            process.wait()
            raise
    return process.returncode, said


def _end_of(returncode: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(-returncode).name
    return f"exit code {returncode}"


def _last_words(stderr: bytes) -> str:
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines()]
    said = [line for line in lines if line]
    return f" ({said[-1][:300]})" if said else ""


def main() -> None:
    """Be the child."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it is expected to die now and then

    import pronk

    options: dict[str, Any] = {}
    for word in sys.argv[3:]:
        key, _, value = word.partition("=")
        options[key] = {"True": True, "False": False}.get(value, value)
    layers = str(options["n_gpu_layers"])
    options["n_gpu_layers"] = layers if layers == "auto" else int(layers)
    with contextlib.suppress(pronk.Error):
        engine = pronk.InferenceEngine.load(sys.argv[2], **options)
        engine.tokenize("Once upon a time", parse_special=True)
        if not options["vocab_only"]:
            # A batch of several tokens and one of one: both build all of the model's graph.
            with pronk.InferenceScheduler(1, engine=engine, n_ctx=64, n_cached=0) as scheduler:
                scheduler.generate([0, 0, 0], max_tokens=2, ignore_eos=True).result()
    # Destructors are not what was asked for.
    sys.stderr.flush()
    os._exit(0)
