"""The awaitable behind a contended acquire_async(), driven by hand: it is a coroutine in C++."""

from __future__ import annotations

import asyncio
import gc
import random
import select
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import pronk
from pronk._async import current_hub
from pronk.testing import ScriptedModel

Drain = Callable[[pronk.InferenceScheduler], None]


async def begin(scheduler: pronk.InferenceScheduler) -> tuple[pronk.InferencePermit, Any]:
    """Return a held permit, and the wait of another for the next one."""
    permit = scheduler.acquire()
    permit.detach()
    wait: Any = scheduler.acquire_async().__aenter__()
    assert scheduler.waiting_count == 1
    return permit, wait


def test_nothing_runs_before_it_is_sent_to() -> None:
    scheduler = pronk.InferenceScheduler(1)

    async def main() -> None:
        permit, wait = await begin(scheduler)
        del wait
        assert scheduler.waiting_count == 0
        permit.release()

    asyncio.run(main())


@pytest.mark.parametrize("granted", [False, True])
@pytest.mark.parametrize("how", ["close", "throw", "drop"])
def test_ended_early(how: str, granted: bool, drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)

    async def main() -> None:
        permit, wait = await begin(scheduler)
        future = next(wait)
        assert isinstance(future, asyncio.Future)
        if granted:
            permit.release()
            assert scheduler.active_count == 1
            assert scheduler.waiting_count == 0
        if how == "close":
            wait.close()
            wait.close()
        elif how == "throw":
            with pytest.raises(LookupError, match="away"):
                wait.throw(LookupError("away"))
        else:
            del wait
        assert scheduler.waiting_count == 0
        assert scheduler.active_count == (0 if granted else 1)
        if how != "drop":
            for use in (lambda: next(wait), lambda: wait.throw(LookupError())):
                with pytest.raises(RuntimeError, match="over"):
                    use()
        permit.release()

    asyncio.run(main())
    drain(scheduler)


def test_a_wait_is_over_once(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)

    async def main() -> None:
        permit, wait = await begin(scheduler)
        permit.release()
        next_permit = await wait
        assert scheduler.active_count == 1
        with pytest.raises(RuntimeError, match="second use"):
            await wait
        next_permit.release()

    asyncio.run(main())
    drain(scheduler)


def test_the_descriptor_stays_silent_within_a_loop(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)
    got: list[int] = []

    async def task(i: int) -> None:
        async with scheduler.acquire_async():
            got.append(i)

    async def main() -> None:
        permit = await scheduler.acquire_async()
        tasks = [asyncio.create_task(task(i)) for i in range(5)]
        await asyncio.sleep(0)
        fd = current_hub().mailbox.fd
        permit.release()
        assert select.select([fd], [], [], 0) == ([], [], [])
        await asyncio.gather(*tasks)
        assert select.select([fd], [], [], 0) == ([], [], [])
        # From elsewhere there is no other way.
        permit = await scheduler.acquire_async()
        last = asyncio.create_task(task(5))
        await asyncio.sleep(0)
        thread = threading.Thread(target=permit.release)
        thread.start()
        thread.join()
        assert select.select([fd], [], [], 0)[0] == [fd]
        await last

    asyncio.run(main())
    assert got == [0, 1, 2, 3, 4, 5]
    drain(scheduler)


def test_a_release_in_a_loop_wakes_the_tasks_of_another(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)
    seed = random.randrange(2**32)
    print("seed", seed)

    def work(number: int) -> None:
        draw = random.Random(seed + number)

        async def task() -> None:
            for _ in range(40):
                async with scheduler.acquire_async():
                    for _ in range(draw.randrange(3)):
                        await asyncio.sleep(0)

        async def main() -> None:
            await asyncio.gather(*[task() for _ in range(5)])

        asyncio.run(main())

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert scheduler.statistics().acquired == 4 * 5 * 40
    drain(scheduler)


def test_a_loop_that_moved_to_another_thread(drain: Drain) -> None:
    # What is released in its first thread must not touch it there.
    scheduler = pronk.InferenceScheduler(1)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_through(scheduler))
    permit = scheduler.acquire()

    async def main() -> None:
        async with scheduler.acquire_async():
            pass

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    while scheduler.waiting_count == 0:
        pass
    permit.release()
    thread.join(30)
    assert not thread.is_alive()
    loop.close()
    drain(scheduler)


async def _through(scheduler: pronk.InferenceScheduler) -> None:
    """Pass a contended gate once, which makes the hub of the loop."""
    permit = await scheduler.acquire_async()

    async def task() -> None:
        async with scheduler.acquire_async():
            pass

    other = asyncio.create_task(task())
    await asyncio.sleep(0)
    permit.release()
    await other


def test_an_exception_leaves_nothing_behind(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)

    async def main() -> None:
        permit = await scheduler.acquire_async()
        wait = scheduler.acquire_async()

        async def task() -> None:
            async with wait:
                pass

        waiting = asyncio.create_task(task())
        await asyncio.sleep(0)
        assert sys.getrefcount(wait) > 2
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        del waiting, task
        gc.collect()
        assert sys.getrefcount(wait) == 2
        permit.release()

    asyncio.run(main())
    drain(scheduler)


def test_a_closed_scheduler_ends_the_wait(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)

    async def main() -> None:
        permit, wait = await begin(scheduler)
        scheduler.close()
        with pytest.raises(pronk.SchedulerClosedError):
            await wait
        permit.release()

    asyncio.run(main())
    drain(scheduler)


def test_leaving_before_the_permit_is_handed_out_ends_the_wait(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)

    async def main() -> None:
        # One with its permit already, and one that waits for it.
        for free in (True, False):
            permit = None if free else scheduler.acquire()
            acquisition: Any = scheduler.acquire_async()
            if permit is not None:
                permit.detach()
                next(acquisition.__aenter__())
            else:
                acquisition.__await__()
            assert (scheduler.active_count, scheduler.waiting_count) == (1, 0 if free else 1)
            await acquisition.__aexit__(None, None, None)
            assert (scheduler.active_count, scheduler.waiting_count) == (0 if free else 1, 0)
            with pytest.raises(RuntimeError, match="over"):
                next(acquisition)
            if permit is not None:
                permit.release()

    asyncio.run(main())
    drain(scheduler)


@pytest.mark.parametrize("kind", [LookupError, StopIteration])
def test_an_error_that_ends_the_wait_while_it_is_made(kind: Any, drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)

    async def main() -> None:
        permit, wait = await begin(scheduler)
        next(wait)

        class Ends(kind):  # type: ignore[misc]
            def __init__(self) -> None:
                wait.close()

        with pytest.raises((LookupError, RuntimeError)):
            wait.throw(Ends)
        permit.release()

    asyncio.run(main())
    drain(scheduler)


class _InterruptedLoop(asyncio.SelectorEventLoop):
    """Where a signal handler raises as soon as a task is to be woken."""

    due = False

    def call_soon(self, *args: Any, **more: Any) -> asyncio.Handle:  # type: ignore[override]
        if self.due:
            self.due = False
            raise KeyboardInterrupt
        return super().call_soon(*args, **more)


def test_what_is_raised_while_tasks_are_woken_is_not_lost(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(2)
    loop = _InterruptedLoop()
    got: list[int] = []

    async def task(i: int) -> None:
        async with scheduler.acquire_async():
            got.append(i)

    async def main() -> None:
        permits = [await scheduler.acquire_async() for _ in range(2)]
        tasks = [loop.create_task(task(i)) for i in range(2)]
        await asyncio.sleep(0)
        loop.due = True
        with pytest.raises(KeyboardInterrupt):
            permits[0].release()
        assert permits[0].released
        # Its future is set, but nobody was told: that is asyncio's. Others go on.
        permits[1].release()
        await tasks[1]
        tasks[0].get_coro().close()

    loop.run_until_complete(main())
    loop.close()
    assert got == [1]
    drain(scheduler)


def test_a_permit_and_a_text_when_the_first_wake_up_raises(drain: Drain) -> None:
    # Both are delivered at once; the text stays for the next time.
    model = ScriptedModel()
    scheduler = pronk.InferenceScheduler(2, engine=model.engine, n_ctx=64)
    loop = _InterruptedLoop()

    async def wait_for_permit() -> None:
        async with scheduler.acquire_async():
            pass

    async def main() -> None:
        permits = [scheduler.acquire() for _ in range(2)]
        for permit in permits:
            permit.detach()
        waiting = loop.create_task(wait_for_permit())
        model.hold()
        generation = permits[0].generate("abc", max_tokens=3)
        texts = loop.create_task(_drain(generation))
        await asyncio.sleep(0)
        model.resume()
        while not generation.done:
            pass
        loop.due = True
        with pytest.raises(KeyboardInterrupt):
            permits[1].release()
        await texts
        waiting.get_coro().close()
        permits[0].release()

    async def _drain(generation: pronk.Generation) -> None:
        async for _ in generation:
            pass

    loop.run_until_complete(asyncio.wait_for(main(), 30))
    loop.close()
    drain(scheduler)
    scheduler.close()
