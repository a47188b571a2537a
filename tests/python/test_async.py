"""The same from asyncio: no executor, no loop turn without need, and no permit lost by a cancel."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any

import pytest
from conftest import wait_until

import pronk
from pronk.testing import ScriptedModel

Drain = Callable[[pronk.InferenceScheduler], None]
Run = Callable[[Coroutine[Any, Any, Any]], Any]

PROMPT = "Tell me"
ANSWER = "al pha beta, gamma."


def loops() -> list[str]:
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return ["asyncio"]
    return ["asyncio", "uvloop"]


@pytest.fixture(params=loops())
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine in a new loop of each kind that is installed, with a limit."""

    def new_loop() -> asyncio.AbstractEventLoop:
        if request.param == "asyncio":
            return asyncio.new_event_loop()
        import uvloop

        return uvloop.new_event_loop()

    def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
        loop = new_loop()
        try:
            return loop.run_until_complete(asyncio.wait_for(coroutine, 30))
        finally:
            loop.close()

    return run


@pytest.fixture
def model() -> ScriptedModel:
    model = ScriptedModel()
    model.script(PROMPT, ANSWER)
    return model


@pytest.fixture
def scheduler(model: ScriptedModel, drain: Drain) -> Iterator[pronk.InferenceScheduler]:
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=256) as scheduler:
        yield scheduler
        drain(scheduler)


async def turns(n: int = 3) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


def test_await_and_async_with(run: Run, scheduler: pronk.InferenceScheduler) -> None:
    async def main() -> None:
        permit = await scheduler.acquire_async()
        assert scheduler.active_count == 1
        permit.release()
        async with scheduler.acquire_async() as permit:
            assert scheduler.active_count == 1
        assert permit.released
        async with await scheduler.acquire_async() as permit:
            assert scheduler.active_count == 1
        assert permit.released
        with await scheduler.acquire_async() as permit:
            assert scheduler.active_count == 1
        assert permit.released

    run(main())


def test_without_contention_no_loop_is_needed(scheduler: pronk.InferenceScheduler) -> None:
    async def main() -> str:
        async with scheduler.acquire_async() as permit:
            assert not permit.released
        await scheduler.acquire_async()
        return "done"

    coroutine = main()
    with pytest.raises(StopIteration, match="done"):
        coroutine.send(None)


def test_an_unused_acquisition_costs_nothing(run: Run, scheduler: pronk.InferenceScheduler) -> None:
    async def main() -> None:
        acquisition = scheduler.acquire_async()
        assert scheduler.active_count == 0
        del acquisition
        used = scheduler.acquire_async()
        (await used).release()
        with pytest.raises(RuntimeError, match="second use"):
            await used

    run(main())


def test_release_in_another_task(run: Run, scheduler: pronk.InferenceScheduler) -> None:
    async def release(permit: pronk.InferencePermit) -> None:
        permit.release()

    async def main() -> None:
        for _ in range(3):
            permit = await scheduler.acquire_async()
            await asyncio.ensure_future(release(permit))
            assert scheduler.active_count == 0

    run(main())


def test_async_generator_dropped_unfinished(run: Run, scheduler: pronk.InferenceScheduler) -> None:
    async def pieces() -> AsyncIterator[str]:
        async with scheduler.acquire_async() as permit:
            async for piece in permit.generate(PROMPT, ignore_eos=True):
                yield piece

    async def main() -> None:
        for _ in range(3):
            async for _ in pieces():
                break
            gc.collect()
            await turns()
            async with scheduler.acquire_async():
                pass

    run(main())


def test_waiters_are_served_in_order(run: Run, scheduler: pronk.InferenceScheduler) -> None:
    order: list[int] = []

    async def work(i: int) -> None:
        async with scheduler.acquire_async():
            order.append(i)
            await turns(2)

    async def main() -> None:
        await asyncio.gather(*(work(i) for i in range(20)))

    run(main())
    assert order == list(range(20))


def test_priority(run: Run, scheduler: pronk.InferenceScheduler) -> None:
    order: list[str] = []

    async def work(name: str, priority: int) -> None:
        async with scheduler.acquire_async(priority=priority):
            order.append(name)

    async def main() -> None:
        async with scheduler.acquire_async():
            tasks = [
                asyncio.ensure_future(work(name, priority))
                for name, priority in [("low", -1), ("high", 1), ("middle", 0)]
            ]
            await turns()
        await asyncio.gather(*tasks)

    run(main())
    assert order == ["high", "middle", "low"]


def test_threads_and_tasks_share_the_queue(run: Run, scheduler: pronk.InferenceScheduler) -> None:
    order: list[str] = []

    def in_thread() -> None:
        with scheduler.acquire():
            order.append("thread")

    async def in_task(name: str) -> None:
        async with scheduler.acquire_async():
            order.append(name)

    async def main() -> None:
        permit = await scheduler.acquire_async()
        first = asyncio.ensure_future(in_task("first"))
        await turns()
        thread = threading.Thread(target=in_thread)
        thread.start()
        await asyncio.to_thread(wait_until, lambda: scheduler.waiting_count == 2)
        last = asyncio.ensure_future(in_task("last"))
        await turns()
        permit.release()
        await asyncio.gather(first, last)
        thread.join()

    run(main())
    assert order == ["first", "thread", "last"]


def test_nested_acquire_raises(run: Run, scheduler: pronk.InferenceScheduler) -> None:
    async def main() -> None:
        async with scheduler.acquire_async():
            with pytest.raises(pronk.DeadlockError):
                async with scheduler.acquire_async():
                    pass
            with pytest.raises(pronk.DeadlockError):
                await scheduler.acquire_async()

    run(main())


def test_a_thread_that_holds_all_permits_gets_none_in_its_loop(
    run: Run, scheduler: pronk.InferenceScheduler
) -> None:
    """It cannot release one before the loop ends, which waits for one."""

    async def main() -> None:
        with pytest.raises(pronk.DeadlockError):
            await scheduler.acquire_async()
        with pytest.raises(pronk.DeadlockError):
            scheduler.acquire(timeout=30)

    with scheduler.acquire():
        run(main())
    with scheduler.acquire() as permit:
        permit.detach()

        async def released() -> None:
            waiting = asyncio.ensure_future(main_permit())
            await turns()
            permit.release()
            await waiting

        async def main_permit() -> None:
            (await scheduler.acquire_async()).release()

        run(released())


def test_a_permit_taken_by_blocking_belongs_to_the_task(
    run: Run, scheduler: pronk.InferenceScheduler
) -> None:
    async def take() -> None:
        (await scheduler.acquire_async()).release()

    async def main() -> None:
        permit = scheduler.acquire()
        with pytest.raises(pronk.DeadlockError):
            await scheduler.acquire_async()
        with pytest.raises(pronk.DeadlockError):
            scheduler.acquire(timeout=30)
        waiting = asyncio.ensure_future(take())
        await turns()
        assert scheduler.waiting_count == 1
        permit.release()
        await waiting
        permit = scheduler.try_acquire()
        assert permit is not None
        with pytest.raises(pronk.DeadlockError):
            await scheduler.acquire_async()
        permit.release()

    run(main())


def test_tasks_are_not_confused_with_their_dead_namesakes(
    run: Run, scheduler: pronk.InferenceScheduler
) -> None:
    async def take() -> pronk.InferencePermit:
        return await scheduler.acquire_async()

    async def main() -> None:
        # The memory of dead tasks is given to new ones.
        for _ in range(50):
            permit = await asyncio.ensure_future(take())
            waiting = asyncio.ensure_future(take())
            await turns()
            permit.release()
            (await waiting).release()

    run(main())


def test_wait_for_leaves_the_queue(run: Run, scheduler: pronk.InferenceScheduler) -> None:
    async def main() -> None:
        async with scheduler.acquire_async():

            async def hurry() -> None:
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(scheduler.acquire_async(), 0.01)

            await asyncio.ensure_future(hurry())
            assert scheduler.waiting_count == 0
        assert scheduler.active_count == 0

    run(main())


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("style", ["await", "async with"])
def test_cancel_at_any_instant(
    run: Run, scheduler: pronk.InferenceScheduler, before: int, after: int, style: str
) -> None:
    """A waiter is cancelled some turns before, at, or after the release that grants it."""
    got: list[str] = []

    async def work(name: str) -> None:
        if style == "await":
            with await scheduler.acquire_async():
                got.append(name)
        else:
            async with scheduler.acquire_async():
                got.append(name)

    async def main() -> None:
        permit = await scheduler.acquire_async()
        victim = asyncio.ensure_future(work("victim"))
        await turns()
        heir = asyncio.ensure_future(work("heir"))
        await turns()
        if before > after:
            victim.cancel()
            await turns(before - after)
            permit.release()
        else:
            permit.release()
            await turns(after - before)
            victim.cancel()
        await asyncio.gather(victim, heir, return_exceptions=True)
        assert not heir.cancelled()
        assert got[-1] == "heir"
        assert scheduler.active_count == 0

    run(main())


def test_timeouts_while_others_churn(run: Run, scheduler: pronk.InferenceScheduler) -> None:
    async def churn() -> None:
        for _ in range(100):
            async with scheduler.acquire_async():
                await asyncio.sleep(0)

    async def hurry() -> None:
        for _ in range(100):
            with suppress(asyncio.TimeoutError):
                (await asyncio.wait_for(scheduler.acquire_async(), 0.0005)).release()

    async def main() -> None:
        await asyncio.gather(*(churn() for _ in range(4)), *(hurry() for _ in range(4)))
        assert scheduler.active_count == 0

    run(main())


def test_close_ends_every_wait(run: Run) -> None:
    scheduler = pronk.InferenceScheduler(1)

    async def wait() -> None:
        with pytest.raises(pronk.SchedulerClosedError):
            await scheduler.acquire_async()

    async def main() -> None:
        permit = await scheduler.acquire_async()
        waiters = [asyncio.ensure_future(wait()) for _ in range(3)]
        await turns()
        scheduler.close()
        await asyncio.gather(*waiters)
        permit.release()

    run(main())


def test_one_scheduler_in_several_loops(scheduler: pronk.InferenceScheduler) -> None:
    async def work() -> None:
        for _ in range(20):
            async with scheduler.acquire_async():
                await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(work() for _ in range(4)))

    for _ in range(3):
        asyncio.run(main())
    threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_closing_a_loop_gives_the_place_of_its_waiters_back(
    run: Run, scheduler: pronk.InferenceScheduler
) -> None:
    permit = scheduler.acquire()
    permit.detach()
    kept: list[asyncio.Future[Any]] = []

    async def wait() -> None:
        async with scheduler.acquire_async():
            pass

    async def main() -> None:
        kept.append(asyncio.ensure_future(wait()))
        await turns()
        assert scheduler.waiting_count == 1

    run(main())
    # The task is still alive, but nobody will ever run it.
    assert scheduler.waiting_count == 0
    permit.release()
    kept[0]._log_destroy_pending = False  # type: ignore[attr-defined]
    kept.clear()
    gc.collect()


def test_a_dead_loop_gives_its_permits_back(
    run: Run, model: ScriptedModel, scheduler: pronk.InferenceScheduler
) -> None:
    model.hold()

    async def generate() -> None:
        async with scheduler.acquire_async() as permit:
            await permit.generate(PROMPT)

    async def main() -> None:
        task = asyncio.ensure_future(generate())
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        await turns()

    run(main())
    gc.collect()
    model.resume()


def test_await_generation(run: Run, scheduler: pronk.InferenceScheduler) -> None:
    async def main() -> None:
        async with scheduler.acquire_async() as permit:
            generation = permit.generate(PROMPT, temperature=0)
            done = await generation
            assert (done.text, done.finish_reason) == (ANSWER, "stop")
            assert (await generation).text == ANSWER  # again, without waiting
        assert (await scheduler.generate(PROMPT, temperature=0)).text == ANSWER

    run(main())


def test_async_for(run: Run, scheduler: pronk.InferenceScheduler) -> None:
    async def main() -> None:
        async with scheduler.acquire_async() as permit:
            generation = permit.generate(PROMPT, temperature=0)
            pieces = [piece async for piece in generation]
            assert "".join(pieces) == ANSWER
            assert [piece async for piece in generation] == []
            with pytest.raises(StopAsyncIteration):
                await generation.__anext__()

    run(main())


def test_many_streams(run: Run, model: ScriptedModel) -> None:
    scheduler = pronk.InferenceScheduler(4, engine=model.engine, n_ctx=256)

    async def work(i: int) -> None:
        expected = model.expected_text(f"prompt {i}", 20)
        async with scheduler.acquire_async() as permit:
            generation = permit.generate(f"prompt {i}", max_tokens=20, temperature=0)
            assert "".join([piece async for piece in generation]) == expected

    async def main() -> None:
        await asyncio.gather(*(work(i) for i in range(40)))

    run(main())
    assert scheduler.close()


def test_two_tasks_wait_for_one_generation(
    run: Run, model: ScriptedModel, scheduler: pronk.InferenceScheduler
) -> None:
    async def main() -> None:
        model.hold()
        generation = scheduler.generate(PROMPT, temperature=0)

        async def read() -> str:
            return "".join([piece async for piece in generation])

        async def wait() -> str:
            return (await generation).text

        tasks = [asyncio.ensure_future(wait()), asyncio.ensure_future(read())]
        await turns()
        model.resume()
        assert await asyncio.gather(*tasks) == [ANSWER, ANSWER]

    run(main())


def test_two_loops_cannot_wait_for_one_generation_at_once(
    model: ScriptedModel, scheduler: pronk.InferenceScheduler
) -> None:
    model.hold()
    generation = scheduler.generate(PROMPT, temperature=0)

    async def read() -> str:
        return "".join([piece async for piece in generation])

    async def main() -> str:
        mine = asyncio.ensure_future(read())
        await turns()

        def other() -> None:
            with pytest.raises(pronk.Error, match="second event loop"):
                asyncio.run(read())

        await asyncio.to_thread(other)
        model.resume()
        return await mine

    assert asyncio.run(main()) == ANSWER
    # One after the other is fine.
    assert asyncio.run(read()) == ""


def test_cancelling_an_await_cancels_the_generation(
    run: Run, model: ScriptedModel, scheduler: pronk.InferenceScheduler
) -> None:
    async def main() -> None:
        model.hold()
        async with scheduler.acquire_async() as permit:
            generation = permit.generate(PROMPT, ignore_eos=True)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(generation, 0.02)
            model.resume()
            done = await asyncio.wait_for(generation, 20)
            assert done.finish_reason == "cancelled"

    run(main())


def test_leaving_async_for_leaves_the_generation(
    run: Run, model: ScriptedModel, scheduler: pronk.InferenceScheduler
) -> None:
    async def main() -> None:
        async with scheduler.acquire_async() as permit:
            generation = permit.generate(PROMPT, temperature=0)
            async for _ in generation:
                break
            assert (await generation).text == ANSWER

    run(main())


def test_failure_reaches_the_task(
    run: Run, model: ScriptedModel, scheduler: pronk.InferenceScheduler
) -> None:
    async def read(generation: pronk.Generation) -> list[str]:
        return [piece async for piece in generation]

    async def main() -> None:
        async with scheduler.acquire_async() as permit:
            for use in ("await", "async for"):
                model.fault("runtime_error")
                generation = permit.generate(PROMPT)
                with pytest.raises(pronk.BackendError):
                    await (generation if use == "await" else read(generation))

    run(main())


def test_no_executor_is_used(run: Run, scheduler: pronk.InferenceScheduler) -> None:
    async def work() -> None:
        async with scheduler.acquire_async() as permit:
            await permit.generate(PROMPT, max_tokens=2)

    async def main() -> None:
        def refuse(*args: object) -> None:
            raise AssertionError("an executor was used")

        asyncio.get_running_loop().run_in_executor = refuse  # type: ignore[assignment, method-assign]
        await asyncio.gather(*(work() for _ in range(10)))

    if "uvloop" in repr(run):
        pytest.skip("its attributes are read-only")
    asyncio.run(main())
