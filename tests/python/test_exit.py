"""Every way a program can end while pronk is busy: own exit code, empty stderr, quickly."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from conftest import Child, child_environment

# A generation that would take for ever, in progress.
BUSY = """
import threading, sys, time, os
import pronk
from pronk.testing import ScriptedModel

model = ScriptedModel()
model.set_delay(0.005)
scheduler = pronk.InferenceScheduler(2, engine=model.engine, n_ctx=4000)
permit = scheduler.acquire()
stream = permit.generate("abc", max_tokens=3000, ignore_eos=True)
next(stream)
"""

SHAPES = {
    "end of main": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "os._exit": ("os._exit(4)", 4),
    "deleted in one order": ("del model, scheduler, permit, stream", 0),
    "deleted in the other order": ("del stream, permit, scheduler, model", 0),
    "class attribute": ("class Keeper: kept = (stream, permit, scheduler)\ndel stream, permit", 0),
    "closure": ("def keep(kept=stream):\n    return lambda: kept\nkept = keep()\ndel stream", 0),
    "cycle": ("cycle = [stream, permit]\ncycle.append(cycle)\ndel stream, permit", 0),
    "builtins": ("import builtins\nbuiltins.kept = (stream, permit, scheduler)", 0),
    "bound method": ("kept = permit.release, scheduler.acquire", 0),
    "closed": ("scheduler.close()", 0),
    "released": ("permit.release()", 0),
    "generator": (
        "def pieces():\n"
        "    with scheduler.acquire() as p:\n"
        "        yield from p.generate('x', max_tokens=3000, ignore_eos=True)\n"
        "g = pieces()\nnext(g)",
        0,
    ),
    "waiting thread": (
        "second = scheduler.acquire()\n"
        "threading.Thread(target=scheduler.acquire, daemon=True).start()\n"
        "time.sleep(0.05)",
        0,
    ),
    "streaming thread": (
        "threading.Thread(target=lambda: list(stream), daemon=True).start()\ntime.sleep(0.05)",
        0,
    ),
    "many streaming threads": (
        "gens = [scheduler.generate('x', max_tokens=3000, ignore_eos=True) for _ in range(8)]\n"
        "for g in gens: threading.Thread(target=g.result, daemon=True).start()\n"
        "time.sleep(0.05)",
        0,
    ),
    "used at exit": (
        "import atexit\natexit.register(lambda: stream.result())\nscheduler.close()",
        0,
    ),
    "asyncio": (
        "import asyncio\n"
        "async def main():\n"
        "    async with scheduler.acquire_async() as p:\n"
        "        async for _ in p.generate('x', max_tokens=3000, ignore_eos=True): break\n"
        "    asyncio.ensure_future(scheduler.generate('x', max_tokens=3000, ignore_eos=True))\n"
        "    await asyncio.sleep(0.02)\n"
        "asyncio.run(main())",
        0,
    ),
    "pending task of a loop never closed": (
        "import asyncio\n"
        "loop = asyncio.new_event_loop()\n"
        "async def wait(): await stream\n"
        "task = loop.create_task(wait())\n"
        "loop.run_until_complete(asyncio.sleep(0.02))\n"
        "task._log_destroy_pending = False; loop.close()",
        0,
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_exit_is_quiet(child: Child, shape: str) -> None:
    code, exits = SHAPES[shape]
    # Quiet also about what an exception of a thread that the end interrupted would print.
    hush = "threading.excepthook = lambda args: None\n"
    finished = child(BUSY + hush + code, exits=exits)
    assert finished.stderr == ""


def test_uncaught_exception(child: Child) -> None:
    finished = child(BUSY + "raise LookupError('of the program')", exits=1)
    assert finished.stderr.rstrip().endswith("LookupError: of the program")
    assert "nanobind" not in finished.stderr


@pytest.mark.parametrize("where", ["end of main", "a thread"])
def test_exit_repeatedly(child: Child, where: str) -> None:
    # The races of a shutdown do not show in one run.
    code = BUSY + (
        "threading.excepthook = lambda args: None\n"
        "for _ in range(4):\n"
        "    threading.Thread(\n"
        "        target=lambda: scheduler.generate('y', max_tokens=3000).result(), daemon=True\n"
        "    ).start()\n"
    )
    if where == "a thread":
        code += "threading.Thread(target=lambda: time.sleep(0.02)).start()\n"
    for _ in range(10):
        assert child(code).stderr == ""


def test_terminated_by_a_signal() -> None:
    code = textwrap.dedent(BUSY) + "print('ready', flush=True)\nstream.result()\n"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    _, errors = process.communicate(timeout=30)
    assert process.returncode == -15
    assert errors == ""


def test_exit_does_not_wait_for_a_stuck_step(child: Child) -> None:
    code = BUSY.replace("model.set_delay(0.005)\n", "") + (
        "model.hold()\nheld = scheduler.generate('z', max_tokens=4)\nassert model.wait_held(20)\n"
    )
    child(code)


def test_import_and_exit(child: Child) -> None:
    assert child("import pronk").stderr == ""
