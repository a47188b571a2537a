"""How runs of agents end: approvals, cancels, failures, exits."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from agent_rig import SECONDS, Message, Start, add, call, check_whole, once
from conftest import wait_until

import pronk

# ---- approval ----


def shop(ran: list[str]) -> list[Any]:
    @pronk.tool(needs_approval=True)
    def buy(item: str) -> str:
        ran.append(item)
        return f"bought {item}"

    return [buy, add]


def test_approved(start: Start) -> None:
    ran: list[str] = []
    asked = []

    def approve(wanted: pronk.AgentCall) -> bool:
        asked.append((wanted.name, wanted.arguments, threading.current_thread()))
        return True

    agent = pronk.Agent(
        start(once(call("buy", item="tea"), call("add", a=1, b=1))),
        tools=shop(ran),
        approve=approve,
    )
    events = [event for event in agent.stream("?") if event.type not in ("text", "queued")]
    kinds = [event.type for event in events]
    assert kinds[:3] == ["iteration", "message", "approval"]
    assert events[2].approved is True
    assert kinds[3:7] == ["tool_start", "tool_start", "tool_result", "tool_result"]
    # Where a prompt on the terminal works, and Ctrl-C at it.
    assert asked == [("buy", {"item": "tea"}, threading.current_thread())]
    assert ran == ["tea"]


def test_denied_ends_the_run_and_nothing_has_run(start: Start) -> None:
    ran: list[str] = []
    agent = pronk.Agent(
        start(once(call("add", a=1, b=1), call("buy", item="a"), call("buy", item="b"))),
        tools=shop(ran),
        approve=lambda wanted: wanted.arguments == {"item": "a"},
    )
    events = list(agent.stream("?"))
    result = events[-1].completion
    assert result is not None
    assert (result.reason, result.iterations) == ("denied", 1)
    assert [each.status for each in result.results] == ["cancelled", "cancelled", "denied"]
    assert [event.approved for event in events if event.type == "approval"] == [True, False]
    assert "tool_start" not in [event.type for event in events]
    assert ran == []
    assert check_whole(agent)[-1]["role"] == "tool"


def test_denied_with_a_reason_goes_on(start: Start) -> None:
    ran: list[str] = []

    async def approve(wanted: pronk.AgentCall) -> str:
        await asyncio.sleep(0)
        return "too expensive"

    agent = pronk.Agent(
        start(once(call("buy", item="a"), call("add", a=1, b=1))), tools=shop(ran), approve=approve
    )
    result = agent.run("?")
    assert (result.reason, result.text) == ("done", "error: denied: too expensive | 2")
    assert ran == []


@pytest.mark.parametrize("answer", [None, 1, "raise"])
def test_an_approval_that_is_none(start: Start, answer: Any) -> None:
    ran: list[str] = []

    def approve(wanted: pronk.AgentCall) -> Any:
        if answer == "raise":
            raise LookupError
        return answer

    agent = pronk.Agent(start(once(call("buy", item="a"))), tools=shop(ran), approve=approve)
    with pytest.raises(LookupError if answer == "raise" else pronk.InvalidTypeError):
        agent.run("?")
    assert ran == []
    assert check_whole(agent)[-1]["role"] == "tool"


def test_who_has_to_be_asked_needs_somebody_to_ask(start: Start) -> None:
    with pytest.raises(pronk.InvalidArgumentError, match="approve: got None"):
        pronk.Agent(start(str), tools=shop([]))


# ---- ends ----


def test_cancelled_while_a_tool_runs(start: Start) -> None:
    stop = threading.Event()
    began = threading.Event()
    cancelled = []

    def slow() -> None:
        stop.wait(SECONDS)

    def quick() -> None:
        began.wait(SECONDS)

    async def task() -> None:
        began.set()
        try:
            await asyncio.sleep(SECONDS)
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    agent = pronk.Agent(
        start(once(call("slow"), call("task"), call("quick"))), tools=[slow, task, quick]
    )
    stream = agent.stream("?")
    kinds = []
    for event in stream:
        kinds.append(event.type)
        if event.type == "tool_result":
            threading.Thread(target=stream.cancel).start()
    assert stream.result().reason == "cancelled"
    assert [each.status for each in stream.result().results] == ["cancelled", "cancelled", "ok"]
    assert kinds[-3:] == ["tool_result", "tool_result", "completed"]
    check_whole(agent)
    wait_until(lambda: bool(cancelled))
    stop.set()


def test_cancelled_while_it_waits_for_its_turn(start: Start) -> None:
    scheduler = start(lambda _: "x" * 500)
    with scheduler.acquire() as permit:
        permit.detach()
        agent = pronk.Agent(scheduler)
        stream = agent.stream("?")
        timer = threading.Timer(0.05, stream.cancel)
        timer.start()
        assert stream.result().reason == "cancelled"
        assert scheduler.waiting_count == 0
    # Nothing was said to it, so it was never asked.
    assert check_whole(agent) == []
    assert agent.run("?").reason == "done"


def test_cancelled_before_it_began(start: Start) -> None:
    stream = pronk.Agent(start(lambda _: "x")).stream("?")
    stream.cancel()
    assert [event.type for event in stream] == ["completed"]
    assert stream.result().reason == "cancelled"


def test_a_stream_left_early(start: Start) -> None:
    scheduler = start(lambda _: "x" * 500)
    scheduler.model.set_delay(0.001)
    agent = pronk.Agent(scheduler)
    for event in agent.stream("?"):
        if event.type == "text":
            break
    said = check_whole(agent)
    assert [message["role"] for message in said] == ["user", "assistant"]
    assert 0 < len(said[1]["content"]) < 500
    # Not dropped, but closed.
    with agent.stream("?") as stream:
        next(stream)
        with pytest.raises(pronk.AgentBusyError):
            agent.run("?")
    assert list(stream) == []
    with pytest.raises(pronk.Error, match="stopped before its end"):
        stream.result()
    assert agent.run("?").reason == "done"


@pytest.mark.parametrize("where", ["thread", "task"])
def test_ends_at_random_instants(start: Start, where: str) -> None:
    """Whenever a stream is closed, its permit is free and its conversation whole."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)

    def tool() -> None:
        time.sleep(rng.random() / 1000)

    async def task() -> None:
        await asyncio.sleep(rng.random() / 1000)

    def reply(messages: list[Message]) -> str:
        done = sum(message["role"] == "assistant" for message in messages)
        return "x" * done + (call("tool") + call("task") if done < 3 else "")

    scheduler = start(reply)
    total = len(list(pronk.Agent(scheduler, tools=[tool, task]).stream("?")))

    async def take(stream: pronk.AgentStream, events: int) -> None:
        # Texts that arrive together make one event, so there may be fewer.
        for _ in range(events):
            if await anext(stream, None) is None:
                break

    for _ in range(30):
        agent = pronk.Agent(scheduler, tools=[tool, task])
        stream = agent.stream("?")
        events = rng.randrange(total)
        if where == "thread":
            for _ in range(events):
                next(stream, None)
        else:
            asyncio.run(take(stream, events))
        stream.close()
        wait_until(lambda: scheduler.active_count == 0)
        messages = check_whole(agent)
        if messages:
            assert messages[0]["role"] == "user"
        # And it goes on from there.
        assert agent.run("go on").reason == "done"


def test_closed_from_another_thread_while_a_tool_runs(start: Start) -> None:
    stop = threading.Event()
    agent = pronk.Agent(
        start(once(call("slow"))), tools=[pronk.tool(lambda: stop.wait(SECONDS), name="slow")]
    )
    stream = agent.stream("?")
    timer = threading.Timer(0.05, stream.close)
    timer.start()
    assert [event.type for event in stream][-1] == "tool_start"
    check_whole(agent)
    stop.set()


def test_a_failure_of_the_model(start: Start) -> None:
    scheduler = start(once(call("add", a=1, b=1)))
    agent = pronk.Agent(scheduler, tools=[add])
    stream = agent.stream("?")
    events: list[pronk.AgentEvent] = []
    while not events or events[-1].type != "tool_result":
        events.append(next(stream))
    scheduler.model.fault("runtime_error", times=None)
    while events[-1].type != "error":
        events.append(next(stream))
    assert isinstance(events[-1].error, pronk.BackendError)
    json.dumps(events[-1].asdict())
    with pytest.raises(pronk.BackendError):
        next(stream)
    scheduler.model.clear_faults()
    assert "completed" not in [event.type for event in events]
    assert list(stream) == []
    # What was done until then is there, and it goes on from there.
    assert check_whole(agent)[-1]["content"] == "2"
    assert agent.run().text == "2"


def test_a_closed_scheduler(start: Start) -> None:
    scheduler = start(lambda _: "x")
    agent = pronk.Agent(scheduler)
    scheduler.close()
    with pytest.raises(pronk.SchedulerClosedError):
        agent.run("?")
    assert check_whole(agent) == []


def test_exits_of_tools_are_no_results(start: Start) -> None:
    def leave() -> None:
        raise SystemExit(3)

    agent = pronk.Agent(start(once(call("leave"))), tools=[leave])
    with pytest.raises(SystemExit):
        agent.run("?")
    assert check_whole(agent)[-1]["role"] == "tool"


def test_ctrl_c_at_random_instants(child: Callable[..., Any]) -> None:
    child(
        """
        import os, random, signal, sys, threading, time
        sys.path.insert(0, sys.argv[1])
        import pronk
        from agent_rig import ScriptedScheduler, call

        seed = random.randrange(2**32)
        print("seed", seed)
        rng = random.Random(seed)

        def tool() -> None:
            time.sleep(0.002)

        async def task() -> None:
            import asyncio
            await asyncio.sleep(0.002)

        def reply(messages):
            done = sum(message["role"] == "assistant" for message in messages)
            return "x" * done + (call("tool") + call("task") if done < 3 else "")

        scheduler = ScriptedScheduler(reply)
        pronk.Agent(scheduler, tools=[tool, task]).run("?")
        interrupted = 0
        for _ in range(80):
            agent = pronk.Agent(scheduler, tools=[tool, task])
            main = threading.main_thread().ident
            timer = threading.Timer(
                rng.random() * 0.03, lambda: signal.pthread_kill(main, signal.SIGINT)
            )
            try:
                timer.start()
                agent.run("?")
                timer.join()
                time.sleep(1)
            except KeyboardInterrupt:
                interrupted += 1
            timer.join()
            pronk.Conversation(agent.conversation.messages)
            deadline = time.monotonic() + 10
            while scheduler.active_count or scheduler.waiting_count:
                assert time.monotonic() < deadline
            assert agent.run("go on").reason == "done"
        assert interrupted == 80, interrupted
        """,
        __file__.rpartition("/")[0],
    )
