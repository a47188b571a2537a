"""What all tests share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from fixtures_agents import *  # noqa: F403 - pytest finds fixtures by name
from fixtures_models import *  # noqa: F403 - pytest finds fixtures by name

import pronk

# A guard against hangs, far above what any recipe needs.
CHILD_SECONDS = 30.0

# The background jobs of a script start with SIGINT ignored, and so would all children of the tests.
signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class Finished:
    """How a child process ended."""

    returncode: int
    stdout: str
    stderr: str


Child = Callable[..., Finished]


@pytest.fixture
def child() -> Child:
    """Run a recipe in a process of its own: `child("print(1)", exits=0)`.

    Fails on a signal, on the time limit, and on an exit code other than `exits` (None: any).
    """

    def run(code: str, *arguments: object, exits: int | None = 0) -> Finished:
        command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)]
        command += [str(argument) for argument in arguments]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=CHILD_SECONDS,
                env=child_environment(),
            )
        except subprocess.TimeoutExpired as error:
            pytest.fail(f"the child did not end within {CHILD_SECONDS:.0f} s: {error.stderr!r}")
        finished = Finished(done.returncode, done.stdout, done.stderr)
        assert done.returncode >= 0, f"the child died of signal {-done.returncode}: {finished}"
        assert exits is None or done.returncode == exits, finished
        return finished

    return run


def child_environment() -> dict[str, str]:
    """The environment of a child: it imports the pronk that this process imported."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return os.environ | {"PYTHONPATH": path, "PYTHONFAULTHANDLER": "1"}


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something that another thread is about to do."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.001)


@pytest.fixture
def drain() -> Callable[[pronk.InferenceScheduler], None]:
    """Check that a scheduler is at rest: nothing held, nobody waits, nothing lost."""

    def check(scheduler: pronk.InferenceScheduler) -> None:
        # A permit comes back once its lane has settled, a moment after its release.
        wait_until(lambda: scheduler.active_count == 0 and scheduler.waiting_count == 0)
        statistics = scheduler.statistics()
        assert statistics.active == 0
        assert statistics.waiting == 0
        assert statistics.acquired == statistics.released
        assert statistics.high_water <= scheduler.max_concurrent
        if not scheduler.closed:
            permits = [scheduler.try_acquire() for _ in range(scheduler.max_concurrent)]
            assert None not in permits
            assert scheduler.try_acquire() is None

    return check


@pytest.fixture(autouse=True)
def no_unraisable_errors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail where an exception was swallowed in a destructor or a callback."""
    caught: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", caught.append)
    yield
    assert caught == []
