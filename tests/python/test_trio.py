"""The same permits and generations under trio, by itself and through anyio."""

from __future__ import annotations

import threading
from collections.abc import Callable

import anyio
import pytest
import trio

import pronk
from pronk.testing import ScriptedModel

PROMPT = "Tell me"
ANSWER = "al pha beta, gamma."


@pytest.fixture
def model() -> ScriptedModel:
    model = ScriptedModel()
    model.script(PROMPT, ANSWER)
    return model


@pytest.fixture
def scheduler(model: ScriptedModel) -> pronk.InferenceScheduler:
    return pronk.InferenceScheduler(1, engine=model.engine, n_ctx=128)


def test_generates(scheduler: pronk.InferenceScheduler) -> None:
    async def main() -> None:
        async with scheduler.acquire_async() as permit:
            pieces = [piece async for piece in permit.generate(PROMPT, temperature=0)]
        assert "".join(pieces) == ANSWER
        permit = await scheduler.acquire_async()
        assert (await permit.generate(PROMPT, temperature=0)).text == ANSWER
        permit.release()
        assert (await scheduler.generate(PROMPT, temperature=0)).text == ANSWER

    trio.run(main)
    assert scheduler.active_count == 0


def test_serves_in_order(scheduler: pronk.InferenceScheduler) -> None:
    order: list[int] = []

    async def agent(number: int) -> None:
        async with scheduler.acquire_async():
            order.append(number)
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        first = scheduler.acquire()
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(agent, number)
                while scheduler.waiting_count <= number:
                    await trio.lowlevel.checkpoint()
            first.release()

    trio.run(main)
    assert order == list(range(20))
    assert (scheduler.active_count, scheduler.waiting_count) == (0, 0)


def test_a_cancelled_wait_gives_its_place_away(scheduler: pronk.InferenceScheduler) -> None:
    async def main() -> None:
        held = scheduler.acquire()
        held.detach()
        with trio.move_on_after(0.01) as scope:
            async with scheduler.acquire_async():
                pass
        assert scope.cancelled_caught
        assert scheduler.waiting_count == 0
        held.release()
        async with scheduler.acquire_async():
            assert scheduler.active_count == 1

    trio.run(main)
    assert scheduler.active_count == 0


def test_cancelled_just_when_granted(scheduler: pronk.InferenceScheduler) -> None:
    async def wait(scope: trio.CancelScope) -> None:
        with scope:
            async with scheduler.acquire_async():
                await trio.sleep_forever()

    async def main() -> None:
        for delay in range(50):
            held = scheduler.acquire()
            scope = trio.CancelScope()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait, scope)
                while scheduler.waiting_count == 0:
                    await trio.lowlevel.checkpoint()
                held.release()
                for _ in range(delay % 7):
                    await trio.lowlevel.checkpoint()
                scope.cancel()
            assert (scheduler.active_count, scheduler.waiting_count) == (0, 0)

    trio.run(main)


def test_a_cancelled_await_cancels_the_generation(
    model: ScriptedModel, scheduler: pronk.InferenceScheduler
) -> None:
    async def main() -> None:
        model.hold()
        generation = scheduler.generate("endless", max_tokens=50, temperature=0)
        with trio.move_on_after(0.01):
            await generation
        model.resume()
        # Nothing but the end of a step stands between the cancel and this.
        assert generation.result(timeout=30).finish_reason == "cancelled"

    trio.run(main)


def test_nested_acquire_raises(scheduler: pronk.InferenceScheduler) -> None:
    async def main() -> None:
        async with scheduler.acquire_async():
            with pytest.raises(pronk.DeadlockError):
                await scheduler.acquire_async()

    trio.run(main)


def test_a_permit_waited_for_at_the_end_of_a_run_comes_back(
    scheduler: pronk.InferenceScheduler,
) -> None:
    held = scheduler.acquire()

    async def main() -> None:
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                await scheduler.acquire_async()

            nursery.start_soon(wait)
            while scheduler.waiting_count == 0:
                await trio.lowlevel.checkpoint()
            raise KeyError

    # An exception group of 3.11, or its backport.
    with pytest.raises(Exception, match="Exceptions from Trio nursery"):
        trio.run(main)
    assert scheduler.waiting_count == 0
    held.release()
    assert scheduler.active_count == 0


def test_several_runs_in_several_threads(scheduler: pronk.InferenceScheduler) -> None:
    async def main() -> None:
        for _ in range(20):
            async with scheduler.acquire_async() as permit:
                assert (await permit.generate(PROMPT, temperature=0)).text == ANSWER

    threads = [threading.Thread(target=trio.run, args=(main,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    trio.run(main)
    assert (scheduler.active_count, scheduler.waiting_count) == (0, 0)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_anyio(scheduler: pronk.InferenceScheduler, backend: str) -> None:
    texts: list[str] = []

    async def agent() -> None:
        async with scheduler.acquire_async() as permit:
            texts.append((await permit.generate(PROMPT, temperature=0)).text)

    async def main() -> None:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                for _ in range(10):
                    group.start_soon(agent)

    run: Callable[..., object] = anyio.run
    run(main, backend=backend)
    assert texts == [ANSWER] * 10
    assert (scheduler.active_count, scheduler.waiting_count) == (0, 0)
