"""What a hostile or unlucky program does, and what holds: typed errors, nothing lost, no signal."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections import UserList, deque
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Child

import pronk
from pronk.testing import ScriptedModel

Drain = Callable[[pronk.InferenceScheduler], None]


@pytest.fixture
def scheduler(drain: Drain) -> Iterator[pronk.InferenceScheduler]:
    model = ScriptedModel()
    with pronk.InferenceScheduler(2, engine=model.engine, n_ctx=128) as scheduler:
        yield scheduler
        drain(scheduler)
        assert model.violations == []


class _LongList(list[int]):
    def __len__(self) -> int:
        return 2**62


class _NegativeList(list[int]):
    def __len__(self) -> int:
        return -1


class _BrokenIterator(list[int]):
    def __iter__(self) -> Iterator[int]:
        raise LookupError


class _Index:
    def __init__(self, function: Callable[[], int]) -> None:
        self._function = function

    def __index__(self) -> int:
        return self._function()


def _shrinking() -> list[Any]:
    tokens: list[Any] = []

    def shrink() -> int:
        tokens.clear()
        return 1

    tokens[:] = [_Index(shrink), 2, 3]
    return tokens


@pytest.mark.parametrize(
    "prompt",
    [
        _LongList([1]),
        _NegativeList([1]),
        _BrokenIterator([1]),
        range(10**30),
        np.broadcast_to(np.int32(-1), (5,)),
        np.zeros(2, dtype="i4,i4"),
        memoryview(b"abcdef").cast("B", (2, 3)),
    ],
    ids=lambda prompt: type(prompt).__name__,
)
def test_a_broken_prompt_is_refused(scheduler: pronk.InferenceScheduler, prompt: Any) -> None:
    # MemoryError, ValueError and OverflowError come from Python where a length is a lie.
    with pytest.raises((TypeError, ValueError, LookupError, MemoryError, OverflowError)):
        scheduler.generate(prompt)


@pytest.mark.parametrize(
    "prompt",
    [
        _shrinking(),
        deque([1, 2]),
        UserList([1, 2]),
        range(1, 3),
        np.broadcast_to(np.int32(1), (5,)),
        np.arange(1, 6)[::-2],
        np.arange(1, 4, dtype=">i4"),
        np.frombuffer(bytes(13), dtype=np.uint8)[1:].view("i4"),
        np.array([1, 2], dtype=object),
    ],
    ids=lambda prompt: type(prompt).__name__,
)
def test_an_odd_prompt_is_taken(scheduler: pronk.InferenceScheduler, prompt: Any) -> None:
    assert scheduler.generate(prompt, max_tokens=1).result(20).usage.prompt_tokens > 0


def test_arguments_may_call_back_into_the_scheduler(scheduler: pronk.InferenceScheduler) -> None:
    def call_back() -> int:
        scheduler.resize(2)
        return scheduler.generate("inner", max_tokens=1).result(20).usage.completion_tokens

    limit: Any = _Index(call_back)
    done = scheduler.generate("outer", max_tokens=limit).result(20)
    assert done.usage.completion_tokens <= 1


@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3), GeneratorExit()])
def test_what_a_progress_function_raises_arrives(tiny_plain: Path, error: BaseException) -> None:
    def report(_fraction: float) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        pronk.InferenceEngine.load(tiny_plain, progress=report)
    assert caught.value is error


def test_a_progress_function_may_load_and_acquire(tiny_plain: Path) -> None:
    inner: list[pronk.InferenceEngine] = []

    def report(_fraction: float) -> None:
        if not inner:
            inner.append(pronk.InferenceEngine.load(tiny_plain))
            with pronk.InferenceScheduler(1).acquire():
                gc.collect()

    outer = pronk.InferenceEngine.load(tiny_plain, progress=report)
    assert inner[0].n_vocab == outer.n_vocab


@pytest.mark.parametrize("steps", range(0, 24, 3))
def test_cancelled_after_any_number_of_steps(
    scheduler: pronk.InferenceScheduler, steps: int
) -> None:
    async def job() -> pronk.Completion:
        async with scheduler.acquire_async() as permit:
            async for _ in permit.generate("abc", max_tokens=6):
                await asyncio.sleep(0)
        return await scheduler.generate("z", max_tokens=4)

    async def main() -> list[pronk.Completion | BaseException]:
        tasks = [asyncio.create_task(job()) for _ in range(4)]
        for step in range(steps):
            await asyncio.sleep(0.001 * (step % 2))
        for task in tasks:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    for outcome in asyncio.run(main()):
        assert isinstance(outcome, (pronk.Completion, asyncio.CancelledError))


def test_two_tasks_share_the_text_of_one_generation(scheduler: pronk.InferenceScheduler) -> None:
    async def main() -> None:
        generation = scheduler.generate("abc", max_tokens=40)

        async def pieces() -> list[str]:
            return [piece async for piece in generation]

        both = asyncio.gather(pieces(), pieces(), generation)
        first, second, completion = await asyncio.wait_for(both, 20)
        assert sorted("".join(first + second)) == sorted(completion.text)

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
def test_a_signal_handler_may_use_the_scheduler(scheduler: pronk.InferenceScheduler) -> None:
    calls = 0

    def handler(_number: int, _frame: object) -> None:
        nonlocal calls
        calls += 1
        permit = scheduler.try_acquire()
        if permit is not None:
            permit.release()

    previous = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        while calls < 20:
            scheduler.generate("abc", max_tokens=4).result(20)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a POSIX file system")
def test_a_model_file_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path / "pipe", tmp_path / "loop", tmp_path, Path("/dev/zero")):
        with pytest.raises(pronk.ModelLoadError):
            pronk.InferenceEngine.load(path)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs RLIMIT_NOFILE of Linux")
def test_no_file_descriptor_for_an_event_loop(child: Child) -> None:
    child(
        """
        import asyncio, resource
        import pronk, pronk._async
        scheduler = pronk.InferenceScheduler(1)

        async def main():
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)
            with scheduler.acquire():
                resource.setrlimit(resource.RLIMIT_NOFILE, (3, limit[1]))
                try:
                    await asyncio.create_task(wait())
                except (pronk.Error, OSError):
                    pass
                else:
                    raise AssertionError("waited without a descriptor")
                resource.setrlimit(resource.RLIMIT_NOFILE, limit)
            assert scheduler.waiting_count == 0
            async with scheduler.acquire_async():
                pass

        async def wait():
            await scheduler.acquire_async()

        asyncio.run(main())
        """
    )


def test_a_stream_left_by_break_is_no_deadlock() -> None:
    model = ScriptedModel()
    scheduler = pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64)

    async def stream() -> AsyncIterator[str]:
        async with scheduler.acquire_async() as permit:
            async for piece in permit.generate("x", max_tokens=30):
                yield piece

    async def main() -> None:
        for _ in range(3):
            async for _piece in stream():
                break

    asyncio.run(main())
    assert wait_until_idle(scheduler)


def wait_until_idle(scheduler: pronk.InferenceScheduler) -> bool:
    return scheduler.close(drain=True, timeout=30)


CLOSE = """
import os, signal, sys, threading
import pronk
from pronk.testing import ScriptedModel

model = ScriptedModel()
model.fault("block", ignore_abort=True, times=None)
scheduler = pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64)
generation = scheduler.generate("abc", max_tokens=3)
assert model.wait_blocked()
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    scheduler.close(drain=sys.argv[1] == "drain")
except KeyboardInterrupt:
    print("interrupted", scheduler.closed)
"""


@pytest.mark.parametrize("how", ["drain", "at once"])
def test_ctrl_c_ends_a_close_that_waits_for_a_stuck_step(how: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", CLOSE, how], capture_output=True, text=True, timeout=60, check=False
    )
    assert (child.returncode, child.stdout, child.stderr) == (0, "interrupted True\n", "")


SUBINTERPRETER = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import pronk
from pronk.testing import ScriptedModel

model = ScriptedModel()
scheduler = pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64)
other = interpreters.create()
source = '''
try:
    import pronk
except ImportError as error:
    assert "subinterpreter" in str(error), error
else:
    raise AssertionError("imported")
'''
assert interpreters.run_string(other, source) is None
interpreters.destroy(other)
print(scheduler.generate("x", max_tokens=2).result(5).finish_reason)
"""


def test_a_subinterpreter_is_refused_and_does_no_harm() -> None:
    child = subprocess.run(
        [sys.executable, "-c", SUBINTERPRETER],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (child.returncode, child.stdout) == (0, "length\n"), child.stderr


def test_a_pool_is_made_on_behalf_of_a_thread_with_a_small_stack(tiny_plain: Path) -> None:
    engine = pronk.InferenceEngine.load(str(tiny_plain))
    scheduler = pronk.InferenceScheduler(1, engine=engine, n_ctx=64, n_threads=1)
    reasons: list[str] = []
    before = threading.stack_size(64 * 1024)
    try:
        thread = threading.Thread(
            target=lambda: reasons.append(
                scheduler.generate("x", max_tokens=1).result(30).finish_reason
            )
        )
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join(60)
    assert reasons == ["length"]


def test_messages_are_whole_whatever_is_quoted() -> None:
    with pytest.raises(pronk.InvalidArgumentError, match=r"got 'f16\\0', expected one of"):
        pronk.InferenceScheduler(1, engine=ScriptedModel().engine, type_k="f16\0")


@pytest.mark.parametrize("prompt", [range(10**30), range(2**40)])
def test_prompts_too_long_to_copy(prompt: range) -> None:
    scheduler = pronk.InferenceScheduler(1, engine=ScriptedModel().engine, n_ctx=64)
    with pytest.raises(pronk.InvalidArgumentError, match="token ids"):
        scheduler.generate(prompt)


def test_errors_can_be_pickled() -> None:
    error = pronk.GenerationCancelled("generation: got cancelled")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (pronk.GenerationCancelled, str(error))


@pytest.mark.parametrize(
    "command", ["info >&-", "info >/dev/full", "run - <&-", "info <&- >&- 2>&-"]
)
def test_the_command_line_survives_closed_streams(command: str) -> None:
    child = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m pronk {command}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in child.stderr
    assert child.returncode in (0, 1, 2)
