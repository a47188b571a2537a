"""Agents in event loops: asyncio, uvloop and trio, with cancels at random instants."""

from __future__ import annotations

import asyncio
import contextvars
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest
from agent_rig import Message, ScriptedScheduler, call
from conftest import wait_until

import pronk

Drain = Callable[[pronk.InferenceScheduler], None]
Run = Callable[[Callable[[], Awaitable[Any]]], Any]
SECONDS = 20.0


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run an async function in each kind of loop, with a limit."""
    backend = "trio" if request.param == "trio" else "asyncio"
    options: dict[str, Any] = {}
    if request.param == "uvloop":
        options["use_uvloop"] = True
        pytest.importorskip("uvloop")

    def run(main: Callable[[], Awaitable[Any]]) -> Any:
        async def limited() -> Any:
            with anyio.fail_after(60):
                return await main()

        return anyio.run(limited, backend=backend, backend_options=options)

    return run


@pytest.fixture
def start(drain: Drain) -> Iterator[Callable[..., ScriptedScheduler]]:
    made = []

    def start(reply: Callable[[list[Message]], str], *args: Any, **options: Any) -> Any:
        made.append(ScriptedScheduler(reply, *args, **options))
        return made[-1]

    yield start
    for scheduler in made:
        drain(scheduler)
        scheduler.close()
        assert scheduler.model.violations == []


Start = Callable[..., ScriptedScheduler]


def once(*calls: str) -> Callable[[list[Message]], str]:
    def reply(messages: list[Message]) -> str:
        if messages[-1]["role"] == "user":
            return "".join(calls)
        return " | ".join(m["content"] for m in messages if m["role"] == "tool")

    return reply


def check_whole(agent: pronk.Agent) -> list[Message]:
    return pronk.Conversation(agent.conversation.messages).messages


def test_runs_sync_and_async_tools(run: Run, start: Start) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

    def sync(n: int) -> str:
        return f"{n} {variable.get()} {threading.current_thread() is threading.main_thread()}"

    async def task(n: int) -> str:
        await anyio.sleep(0.001)
        return f"{n} {variable.get()} {threading.current_thread() is threading.main_thread()}"

    async def main() -> pronk.AgentResult:
        variable.set("seen")
        agent = pronk.Agent(start(once(call("sync", n=1), call("task", n=2))), tools=[sync, task])
        return await agent.run_async("?")

    assert run(main).text == "1 seen False | 2 seen True"


def test_streams(run: Run, start: Start) -> None:
    async def task() -> str:
        return "told"

    async def main() -> list[str]:
        agent = pronk.Agent(start(once("So. ", call("task"))), tools=[task])
        kinds: list[str] = []
        async with agent.stream("?") as stream:
            async for event in stream:
                if not kinds or kinds[-1] != event.type:
                    kinds.append(event.type)
        assert (await stream).text == "told"
        return kinds

    assert run(main) == [
        *("iteration", "queued", "text", "message", "tool_start", "tool_result"),
        *("iteration", "queued", "text", "message", "completed"),
    ]


def test_parallel_calls_and_a_live_loop(run: Run, start: Start) -> None:
    """All calls wait for each other, and the loop goes on meanwhile."""
    barrier = threading.Barrier(2)

    def sync() -> str:
        barrier.wait(SECONDS)
        return "sync"

    async def main() -> str:
        arrived = 0
        all_there = anyio.Event()

        async def task() -> str:
            nonlocal arrived
            arrived += 1
            if arrived == 2:
                all_there.set()
            await all_there.wait()
            return "task"

        calls = [call("sync"), call("task"), call("sync"), call("task")]
        agent = pronk.Agent(start(once(*calls)), tools=[sync, task])
        return (await agent.run_async("?")).text

    assert run(main) == "sync | task | sync | task"


def test_timeouts(run: Run, start: Start) -> None:
    stop = threading.Event()
    ended = []

    @pronk.tool(timeout=0.05)
    def sync() -> None:
        stop.wait(SECONDS)

    @pronk.tool(timeout=0.05)
    async def task() -> None:
        try:
            await anyio.sleep(SECONDS)
        finally:
            ended.append(1)

    async def main() -> pronk.AgentResult:
        agent = pronk.Agent(start(once(call("sync"), call("task"))), tools=[sync, task])
        return await agent.run_async("?")

    result = run(main)
    stop.set()
    assert [each.status for each in result.results] == ["timeout", "timeout"]
    assert result.reason == "done"
    assert ended == [1]


def test_failures_of_tools(run: Run, start: Start) -> None:
    async def fail() -> None:
        raise KeyError("it")

    async def give_up() -> None:
        raise asyncio.CancelledError

    async def main() -> pronk.AgentResult:
        agent = pronk.Agent(start(once(call("fail"), call("give_up"))), tools=[fail, give_up])
        return await agent.run_async("?")

    result = run(main)
    assert [each.status for each in result.results] == ["failed", "failed"]
    assert result.results[0].content == "error: KeyError: 'it'"


def test_a_tool_that_exits(run: Run, start: Start) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    agent = pronk.Agent(start(once(call("leave"))), tools=[leave])

    async def main() -> None:
        with pytest.raises(SystemExit):
            await agent.run_async("?")

    run(main)
    assert check_whole(agent)[-1]["role"] == "tool"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_approval_does_not_block_the_loop(run: Run, start: Start, kind: str) -> None:
    asked = threading.Event()
    allow = threading.Event()

    def approve(_: pronk.AgentCall) -> bool:
        asked.set()
        return allow.wait(SECONDS)

    async def approve_async(_: pronk.AgentCall) -> bool:
        asked.set()
        return await anyio.to_thread.run_sync(allow.wait, SECONDS)

    @pronk.tool(needs_approval=True)
    async def task() -> str:
        return "allowed"

    async def main() -> str:
        agent = pronk.Agent(
            start(once(call("task"))),
            tools=[task],
            approve=approve if kind == "sync" else approve_async,
        )
        async with anyio.create_task_group() as group:

            async def decide() -> None:
                await anyio.to_thread.run_sync(asked.wait, SECONDS)
                allow.set()

            group.start_soon(decide)
            return (await agent.run_async("?")).text

    assert run(main) == "allowed"


def test_cancelled_from_another_task(run: Run, start: Start) -> None:
    async def task() -> None:
        await anyio.sleep(SECONDS)

    async def main() -> pronk.AgentResult:
        agent = pronk.Agent(start(once(call("task"))), tools=[task])
        stream = agent.stream("?")
        async for event in stream:
            if event.type == "tool_start":
                stream.cancel()
        return await stream

    assert run(main).reason == "cancelled"


def test_closed_from_another_thread(run: Run, start: Start) -> None:
    cancelled = []

    async def task() -> None:
        try:
            await anyio.sleep(SECONDS)
        except BaseException:
            cancelled.append(1)
            raise

    async def main() -> list[str]:
        stream = pronk.Agent(start(once(call("task"))), tools=[task]).stream("?")
        kinds = []
        async for event in stream:
            kinds.append(event.type)
            if event.type == "tool_start":
                threading.Timer(0.02, stream.close).start()
        with anyio.fail_after(SECONDS):
            while not cancelled:  # noqa: ASYNC110 - no event reaches from a task that is ended
                await anyio.sleep(0.001)
        return kinds

    assert run(main)[-1] == "tool_start"


def test_cancels_at_random_instants(run: Run, start: Start) -> None:
    """Whenever its task is cancelled, its permit is free and its conversation whole."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)

    def sync() -> None:
        time.sleep(rng.random() / 1000)

    async def task() -> None:
        await anyio.sleep(rng.random() / 1000)

    @pronk.tool(needs_approval=True)
    async def asks() -> None: ...

    async def approve(_: pronk.AgentCall) -> bool:
        await anyio.sleep(rng.random() / 1000)
        return True

    def reply(messages: list[Message]) -> str:
        done = sum(message["role"] == "assistant" for message in messages)
        return "x" * done + (call("sync") + call("task") + call("asks") if done < 3 else "")

    scheduler = start(reply)

    async def main() -> None:
        for _ in range(30):
            agent = pronk.Agent(scheduler, tools=[sync, task, asks], approve=approve)
            with anyio.move_on_after(rng.random() * 0.03):
                await agent.run_async("?")
            check_whole(agent)
            wait_until(lambda: scheduler.active_count == 0 and scheduler.waiting_count == 0)
            assert (await agent.run_async("go on")).reason == "done"

    run(main)


def test_cancelled_while_queued(run: Run, start: Start) -> None:
    scheduler = start(lambda _: "x")

    async def main() -> None:
        agent = pronk.Agent(scheduler)
        held = scheduler.acquire()
        held.detach()
        with anyio.move_on_after(0.01) as scope:
            await agent.run_async("?")
        assert scope.cancelled_caught
        assert scheduler.waiting_count == 0
        assert check_whole(agent) == []
        held.release()
        assert (await agent.run_async("?")).reason == "done"

    run(main)


def test_a_stream_left_early(run: Run, start: Start) -> None:
    scheduler = start(lambda _: "x" * 300)
    scheduler.model.set_delay(0.001)
    agent = pronk.Agent(scheduler)

    async def main() -> None:
        async for event in agent.stream("?"):
            if event.type == "text":
                break
        # At once, without a turn of the loop.
        assert len(check_whole(agent)) == 2
        assert (await agent.run_async("?")).reason == "done"

    run(main)


def test_one_way_of_iteration_and_one_loop(start: Start) -> None:
    async def first(stream: pronk.AgentStream) -> None:
        await stream.__anext__()

    agent = pronk.Agent(start(lambda _: "x"))
    with agent.stream("?") as stream:
        asyncio.run(first(stream))
        with pytest.raises(pronk.Error, match="second event loop"):
            asyncio.run(first(stream))
    with agent.stream("?") as stream:
        asyncio.run(first(stream))
        with pytest.raises(pronk.Error, match="both sync and async"):
            next(stream)


def test_a_loop_that_ends_under_a_run(start: Start) -> None:
    scheduler = start(once(call("task")))

    async def task() -> None:
        await asyncio.sleep(SECONDS)

    agent = pronk.Agent(scheduler, tools=[task])
    stream = agent.stream("?")

    async def main() -> None:
        async for event in stream:
            if event.type == "tool_start":
                return

    asyncio.run(main())
    stream.close()
    check_whole(agent)
    wait_until(lambda: scheduler.active_count == 0)


def test_run_within_a_running_loop(start: Start) -> None:
    """As in a notebook: it blocks the loop, and works."""

    async def task() -> str:
        await asyncio.sleep(0)
        return "done"

    agent = pronk.Agent(start(once(call("task"))), tools=[task])

    async def main() -> str:
        return agent.run("?").text

    assert asyncio.run(main()) == "done"


def test_an_end_of_iteration_out_of_a_callback_is_an_error(run: Run, start: Start) -> None:
    def approve(_: pronk.AgentCall) -> bool:
        raise StopAsyncIteration

    @pronk.tool(needs_approval=True)
    def buy() -> str:
        return "bought"

    agent = pronk.Agent(start(lambda _: call("buy")), tools=[buy], approve=approve)

    async def main() -> None:
        await agent.run_async("?")

    with pytest.raises(RuntimeError, match="StopAsyncIteration"):
        run(main)
