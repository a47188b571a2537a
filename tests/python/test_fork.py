"""After fork() the child refuses to use what belongs to its parent, and ends in peace."""

from __future__ import annotations

import os

import pytest
from conftest import Child

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")

PARENT = """
import os, sys, warnings
import pronk
from pronk.testing import ScriptedModel

warnings.simplefilter("ignore")  # of Python about fork() in a process with threads
model = ScriptedModel()
scheduler = pronk.InferenceScheduler(2, engine=model.engine, n_ctx=256)
permit = scheduler.acquire()
stream = permit.generate("abc", max_tokens=64, ignore_eos=True)
next(stream)

def in_child(body, end=os._exit):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = body() or 0
        except BaseException as error:
            print("child:", type(error).__name__, error, file=sys.stderr)
            os._exit(99)
        end(code)
    _, status = os.waitpid(pid, 0)
    assert os.WIFEXITED(status), status
    return os.WEXITSTATUS(status)
"""

ALIVE = """
assert stream.result(20).usage.completion_tokens == 64
permit.release()
assert scheduler.generate("abc", max_tokens=4).result(20).tokens
"""


@pytest.mark.parametrize(
    "call",
    [
        "scheduler.acquire()",
        "scheduler.try_acquire()",
        "scheduler.generate('abc')",
        "permit.generate('abc')",
        "stream.result()",
        "next(stream)",
        "scheduler.statistics()",
        "scheduler.close()",
    ],
)
def test_calls_of_a_child_raise(child: Child, call: str) -> None:
    code = f"""
def body():
    try:
        {call}
    except pronk.ForkedProcessError as error:
        assert "fork" in str(error)
        return 7
assert in_child(body) == 7
"""
    assert child(PARENT + code + ALIVE).stderr == ""


@pytest.mark.parametrize("end", ["os._exit", "sys.exit"])
def test_child_just_exits(child: Child, end: str) -> None:
    code = f"assert in_child(lambda: 5, end={end}) == 5\n"
    assert child(PARENT + code + ALIVE).stderr == ""


def test_child_drops_everything(child: Child) -> None:
    code = """
def body():
    global stream, permit, scheduler, model
    permit.release()
    stream.cancel()
    del stream, permit, scheduler, model
    import gc
    gc.collect()
assert in_child(body, end=sys.exit) == 0
"""
    assert child(PARENT + code + ALIVE).stderr == ""


def test_child_has_a_gate_of_its_own(child: Child) -> None:
    code = """
def body():
    mine = pronk.InferenceScheduler(1)
    with mine.acquire():
        pass
    other = ScriptedModel()
    with pronk.InferenceScheduler(1, engine=other.engine, n_ctx=64) as fresh:
        assert fresh.generate("abc", max_tokens=2).result(20).tokens
assert in_child(body, end=sys.exit) == 0
"""
    assert child(PARENT + code + ALIVE).stderr == ""


def test_multiprocessing_fork_pool(child: Child) -> None:
    code = """
import multiprocessing
def work(n):
    return n * n
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(work, range(8)) == [n * n for n in range(8)]
"""
    assert child(PARENT + code + ALIVE).stderr == ""


def test_fork_while_a_thread_waits(child: Child) -> None:
    code = """
import threading, time
second = scheduler.acquire()
thread = threading.Thread(target=lambda: scheduler.acquire().release())
thread.start()
while scheduler.waiting_count == 0:
    time.sleep(0.001)
assert in_child(lambda: 6, end=sys.exit) == 6
second.release()
thread.join()
"""
    assert child(PARENT + code + ALIVE).stderr == ""
