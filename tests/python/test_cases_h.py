"""Cases H: what could hang. See CASES.md."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import Child, wait_until

import pronk
from pronk.testing import ScriptedModel

Drain = Callable[[pronk.InferenceScheduler], None]

SECONDS = 20.0  # a guard against hangs


class Turns:
    """Who used the model when: begin and end of each, in order."""

    def __init__(self, scheduler: pronk.InferenceScheduler) -> None:
        self.scheduler = scheduler
        self.events: list[str] = []

    def in_thread(self, name: str) -> None:
        with self.scheduler.acquire() as permit:
            self.events.append(name)
            done = permit.generate(name, max_tokens=16, temperature=0, ignore_eos=True)
            assert len(done.result(SECONDS).tokens) == 16
            self.events.append(name)

    async def in_task(self, name: str) -> None:
        async with self.scheduler.acquire_async() as permit:
            self.events.append(name)
            done = permit.generate(name, max_tokens=16, temperature=0, ignore_eos=True)
            assert len((await done).tokens) == 16
            self.events.append(name)


@pytest.mark.parametrize("who", ["threads", "tasks", "both"])
def test_two_at_once_for_one_permit(tiny_plain: Path, who: str, drain: Drain) -> None:
    """H01: both finish, the second strictly after the first."""
    engine = pronk.InferenceEngine.load(tiny_plain)
    with pronk.InferenceScheduler(1, engine=engine, n_ctx=64, n_threads=1) as scheduler:
        for _ in range(10):
            turns = Turns(scheduler)
            barrier = threading.Barrier(2)

            def thread(
                name: str, turns: Turns = turns, barrier: threading.Barrier = barrier
            ) -> None:
                barrier.wait(SECONDS)
                turns.in_thread(name)

            async def both(turns: Turns = turns) -> None:
                await asyncio.gather(turns.in_task("a"), turns.in_task("b"))

            async def one(turns: Turns = turns, barrier: threading.Barrier = barrier) -> None:
                barrier.wait(SECONDS)
                await turns.in_task("b")

            with ThreadPoolExecutor(2) as pool:
                if who == "threads":
                    running = [pool.submit(thread, name) for name in "ab"]
                elif who == "tasks":
                    running = [pool.submit(asyncio.run, both())]
                else:
                    running = [pool.submit(thread, "a"), pool.submit(asyncio.run, one())]
                for future in running:
                    future.result(SECONDS)
            first, again, second, last = turns.events
            assert first == again != second == last
        drain(scheduler)


def test_two_processes_on_one_model(tiny_plain: Path, child: Child) -> None:
    """H01: separate processes do not disturb each other."""
    code = """
        import sys
        import pronk

        engine = pronk.InferenceEngine.load(sys.argv[1])
        with pronk.InferenceScheduler(1, engine=engine, n_ctx=64, n_threads=1) as scheduler:
            print(scheduler.generate("a", max_tokens=16, temperature=0).result(20).tokens)
    """
    with ThreadPoolExecutor(2) as pool:
        outputs = [f.result().stdout for f in [pool.submit(child, code, tiny_plain)] * 2]
    assert outputs[0] == outputs[1] != ""


def test_a_full_executor_does_not_matter() -> None:
    """H03: ten tasks wait while the holder needs the default executor, which has two workers."""
    model = ScriptedModel()

    async def work(scheduler: pronk.InferenceScheduler) -> None:
        async with scheduler.acquire_async():
            await asyncio.to_thread(int)

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        async with scheduler.acquire_async():
            waiting = [asyncio.ensure_future(work(scheduler)) for _ in range(10)]
            await asyncio.sleep(0)
            assert scheduler.waiting_count == 10
            await asyncio.to_thread(int)
        await asyncio.gather(*waiting)

    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64) as scheduler:
        asyncio.run(asyncio.wait_for(main(), SECONDS))
        assert scheduler.active_count == 0


@pytest.mark.parametrize("layout", ["isolated", "batched"])
def test_a_device_that_hangs(layout: str) -> None:
    """H09: nobody waits for ever for a step that never ends, and the statistics show its age."""
    model = ScriptedModel()
    scheduler = pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64, layout=layout)
    model.fault("block", call=5, ignore_abort=True)
    permit = scheduler.acquire()
    stuck = permit.generate("abc", max_tokens=30, ignore_eos=True)
    assert model.wait_blocked(SECONDS)
    with ThreadPoolExecutor(1) as pool, pytest.raises(pronk.AcquireTimeout):
        pool.submit(scheduler.acquire, timeout=0.05).result(SECONDS)
    stuck.cancel()
    with pytest.raises(pronk.ResultTimeout):
        stuck.result(0.05)
    first = scheduler.statistics().seconds_since_progress
    assert first > 0
    wait_until(lambda: scheduler.statistics().seconds_since_progress > first + 0.1)
    assert not scheduler.close(timeout=0.05)
    with pytest.raises(pronk.BackendError, match="step"):
        stuck.result(SECONDS)
    permit.release()
    model.release_blocked()
    wait_until(lambda: model.counters.contexts_alive == 0)


@pytest.mark.parametrize("style", ["thread", "task"])
def test_streams_left_early_one_after_the_other(style: str, drain: Drain) -> None:
    """H11: whoever breaks out of a stream may acquire again at once.

    The permit is then still on its way back, until the step that runs is over. Its former holder
    waits for that as anybody would: it holds nothing that it could release.
    """
    model = ScriptedModel()
    model.set_delay(0.002)

    async def in_task() -> None:
        for _ in range(20):
            async with scheduler.acquire_async() as permit:
                async for _ in permit.generate("abc", ignore_eos=True):
                    break

    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=256) as scheduler:
        if style == "task":
            asyncio.run(asyncio.wait_for(in_task(), SECONDS))
        else:
            for _ in range(20):
                with scheduler.acquire(timeout=SECONDS) as permit:
                    for _ in permit.generate("abc", ignore_eos=True):
                        break
        drain(scheduler)


@pytest.mark.parametrize("layout", ["isolated", "batched"])
def test_close_with_many_at_work(layout: str) -> None:
    """H17: eight generate, eight wait; two close at once, one of them inside its own stream."""
    model = ScriptedModel()
    model.set_delay(0.001)
    scheduler = pronk.InferenceScheduler(8, engine=model.engine, n_ctx=4000, layout=layout)
    errors: list[type[BaseException]] = []

    def wait() -> None:
        try:
            scheduler.acquire(timeout=60).release()
        except BaseException as error:
            errors.append(type(error))

    permits = [scheduler.acquire() for _ in range(8)]
    streams = [p.generate("abc", max_tokens=3000, ignore_eos=True) for p in permits]
    waiters = [threading.Thread(target=wait) for _ in range(8)]
    for thread in waiters:
        thread.start()
    wait_until(lambda: scheduler.waiting_count == 8)
    other = threading.Thread(target=scheduler.close)
    for _ in streams[0]:
        other.start()
        assert scheduler.close()
        break
    with pytest.raises(pronk.GenerationCancelled):
        list(streams[0])
    for thread in [other, *waiters]:
        thread.join(SECONDS)
        assert not thread.is_alive()
    assert errors == [pronk.SchedulerClosedError] * 8
    assert {stream.result(SECONDS).finish_reason for stream in streams} == {"cancelled"}
    for permit in permits:
        permit.release()
    assert scheduler.active_count == 0
    assert scheduler.close()
