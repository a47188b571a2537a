"""Agents in threads: the loop, its events, its ends, and what the model is told of its tools."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agent_rig import Message, ScriptedScheduler, call
from conftest import wait_until

import pronk

Drain = Callable[[pronk.InferenceScheduler], None]
SECONDS = 20.0


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def told(messages: list[Message]) -> list[str]:
    """What the tools of the last turn said."""
    results = []
    for message in reversed(messages):
        if message["role"] != "tool":
            break
        results.append(message["content"])
    return results[::-1]


def once(*calls_: str, answer: str = "") -> Callable[[list[Message]], str]:
    """A model that calls, and then says what it was told."""

    def reply(messages: list[Message]) -> str:
        if messages[-1]["role"] == "user":
            return "".join(calls_)
        return answer or " | ".join(told(messages))

    return reply


@pytest.fixture
def start(drain: Drain) -> Iterator[Callable[..., ScriptedScheduler]]:
    """Make schedulers whose replies a function gives."""
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


def check_whole(agent: pronk.Agent) -> list[Message]:
    """Every call has its result; the constructor checks that."""
    return pronk.Conversation(agent.conversation.messages).messages


def test_answers_without_tools(start: Start) -> None:
    agent = pronk.Agent(start(lambda _: "Hello."), system_prompt="Be brief.")
    result = agent.run("Hi")
    assert (result.text, result.reason, result.iterations) == ("Hello.", "done", 1)
    assert result.usage.completion_tokens > 0
    assert result.messages == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
    ]
    assert agent.conversation.messages == [
        {"role": "system", "content": "Be brief."},
        *result.messages,
    ]


def test_runs_tools_and_tells_the_model(start: Start) -> None:
    scheduler = start(once("Let me see. ", call("add", a=1, b=2), call("add", a=3, b=4)))
    agent = pronk.Agent(scheduler, tools=[add])
    result = agent.run("Sums?")
    assert (result.text, result.reason, result.iterations) == ("3 | 7", "done", 2)
    asked = result.messages[1]
    ids = [each["id"] for each in asked["tool_calls"]]
    assert len(set(ids)) == 2
    assert [m["tool_call_id"] for m in result.messages if m["role"] == "tool"] == ids
    assert [each.content for each in result.results] == ["3", "7"]
    assert [each.call.arguments for each in result.results] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert check_whole(agent) == result.messages


def test_every_event_in_order(start: Start) -> None:
    scheduler = start(once("So. ", call("add", a=1, b=2)))
    agent = pronk.Agent(scheduler, tools=[add])
    events = list(agent.stream("Sum?"))
    kinds = [event.type for event in events]
    merged = [kind for n, kind in enumerate(kinds) if n == 0 or kinds[n - 1] != kind]
    assert merged == [
        *("iteration", "queued", "text", "message", "tool_start", "tool_result"),
        *("iteration", "queued", "text", "message", "completed"),
    ]
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    assert len({event.run_id for event in events}) == 1
    times = [event.time for event in events]
    assert times == sorted(times)
    assert abs(times[0] - time.time()) < 3600
    first = [event for event in events if event.iteration == 1]
    assert "".join(event.text for event in first if event.type == "text") == "So. "
    started = next(event for event in events if event.type == "tool_start")
    ended = next(event for event in events if event.type == "tool_result")
    assert started.call == ended.call
    assert ended.result is not None
    assert (ended.result.status, ended.result.content) == ("ok", "3")
    ends = [event for event in events if event.type == "message"]
    assert [event.finish_reason for event in ends] == ["tool_calls", "stop"]
    assert all(event.usage is not None and event.usage.prompt_tokens > 0 for event in ends)
    last = events[-1]
    assert last.completion is not None
    assert last.usage == last.completion.usage
    assert last.usage == sum((event.usage for event in ends), pronk.AgentUsage())  # type: ignore[arg-type]
    for event in events:
        json.dumps(event.asdict())


def test_each_run_has_an_id_of_its_own(start: Start) -> None:
    agent = pronk.Agent(start(lambda _: "x"))
    assert len({event.run_id for _ in range(3) for event in agent.stream("?")}) == 3


def test_the_iterations_are_counted(start: Start) -> None:
    ran = []
    agent = pronk.Agent(
        start(lambda _: call("note")),
        tools=[pronk.tool(lambda: ran.append(1), name="note")],
        max_iterations=3,
    )
    result = agent.run("?")
    assert (result.reason, result.iterations, len(ran)) == ("max_iterations", 3, 3)
    assert check_whole(agent)[-1]["role"] == "tool"
    assert agent.run().reason == "max_iterations"
    assert len(ran) == 6


def test_an_answer_cut_off_is_length_and_its_calls_are_not_run(start: Start) -> None:
    ran = []
    text = "Well. " + call("note", text="x" * 50)
    for max_tokens in range(1, 40, 3):
        agent = pronk.Agent(
            start(lambda _: text),
            tools=[pronk.tool(lambda text: ran.append(text), name="note")],
            max_tokens=max_tokens,
        )
        result = agent.run("?")
        assert (result.reason, result.iterations) == ("length", 1)
        assert "tool_calls" not in check_whole(agent)[-1]
    assert ran == []


@pytest.mark.parametrize(
    ("calls", "status", "content"),
    [
        ([("nothing", "{}")], "unknown_tool", "got 'nothing', expected add, fail"),
        ([("add", '{"a": 1')], "invalid_arguments", "invalid JSON"),
        ([("add", "[1, 2]")], "invalid_arguments", "no JSON object"),
        ([("add", "")], "invalid_arguments", "a: missing; b: missing"),
        ([("add", '{"a": 1}')], "invalid_arguments", "b: missing"),
        ([("add", '{"a": 1, "b": "many"}')], "invalid_arguments", "b: "),
        ([("add", '{"a": 1, "b": 2, "c": 3}')], "invalid_arguments", "c: "),
        (call("fail", what="it"), "failed", "KeyError: 'it'"),
        (call("odd"), "failed", "Circular"),
        (call("slow"), "timeout", "within 0.05 s"),
        (call("sleep"), "timeout", "within 0.05 s"),
    ],
)
def test_what_goes_wrong_is_told_to_the_model(
    start: Start, calls: Any, status: str, content: str
) -> None:
    def fail(what: str) -> None:
        raise KeyError(what)

    def odd() -> Any:
        loop: list[Any] = []
        loop.append(loop)
        return loop

    stop = threading.Event()

    @pronk.tool(timeout=0.05)
    def slow() -> None:
        stop.wait(SECONDS)

    @pronk.tool(timeout=0.05)
    async def sleep() -> None:
        await asyncio.sleep(SECONDS)

    def reply(messages: list[Message]) -> Any:
        return calls if messages[-1]["role"] == "user" else told(messages)[0]

    agent = pronk.Agent(start(reply), tools=[add, fail, odd, slow, sleep])
    result = agent.run("?")
    stop.set()
    assert result.reason == "done"
    assert result.results[0].status == status
    assert result.results[0].content.startswith("error: ")
    assert content in result.results[0].content
    assert result.text == result.results[0].content
    # What is kept can be rendered: arguments are always an object.
    for message in check_whole(agent):
        for each in message.get("tool_calls", ()):
            assert isinstance(json.loads(each["function"]["arguments"]), dict)


def test_a_failure_that_cannot_say_what_it_is(start: Start) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def fail() -> None:
        raise MuteError

    agent = pronk.Agent(start(once(call("fail"))), tools=[fail])
    assert agent.run("?").text == "error: MuteError: "


def test_a_demand_for_a_call_holds_once(start: Start) -> None:
    scheduler = start(once(call("add", a=1, b=1)))
    agent = pronk.Agent(scheduler, tools=[add], tool_choice="required", max_tokens=99)
    assert agent.run("?").text == "2"
    assert [each["tool_choice"] for each in scheduler.params] == ["required", "auto"]
    assert {each["max_tokens"] for each in scheduler.params} == {99}


def test_a_failure_leaves_its_exception(start: Start) -> None:
    def fail() -> None:
        raise ValueError("no")

    agent = pronk.Agent(start(once(call("fail"))), tools=[fail])
    assert isinstance(agent.run("?").results[0].exception, ValueError)


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        (None, "null"),
        ({"a": [1, 2.5, True]}, '{"a":[1,2.5,true]}'),
        ("\udcff", "?"),
        (b"bytes", '"bytes"'),
    ],
)
def test_results_as_text(start: Start, value: Any, content: str) -> None:
    agent = pronk.Agent(start(once(call("get"))), tools=[pronk.tool(lambda: value, name="get")])
    assert agent.run("?").results[0].content == content


def test_a_huge_result_is_cut(start: Start) -> None:
    scheduler = start(once(call("get"), answer="ok"))
    agent = pronk.Agent(
        scheduler, tools=[pronk.tool(lambda: "x" * 10**6, name="get")], context_tokens=1000
    )
    result = agent.run("?")
    assert (result.reason, result.text) == ("done", "ok")
    content = result.results[0].content
    # Of a byte each, and half of what a prompt may have.
    assert content == "x" * 500 + "\n[cut off: the first 500 of 1000000 characters]"


def test_results_share_the_room_that_there_is(start: Start) -> None:
    scheduler = start(once(*[call("get")] * 4, answer="ok"), n_ctx=4096)
    # Of three bytes each, none of them cut in two.
    agent = pronk.Agent(
        scheduler, tools=[pronk.tool(lambda: "漢" * 10**6, name="get")], max_tokens=1000
    )
    result = agent.run("?")
    assert result.text == "ok"
    assert [each.content.count("漢") for each in result.results] == [
        (4096 - 1000) // 2 // 4 // 3
    ] * 4


def test_parallel_calls_run_in_parallel(start: Start) -> None:
    barrier = threading.Barrier(4)
    ready = threading.Semaphore(0)

    def sync() -> str:
        barrier.wait(SECONDS)
        return "sync"

    async def task() -> str:
        # Gets there only if the others wait at the same time.
        await asyncio.get_running_loop().run_in_executor(None, barrier.wait, SECONDS)
        return "task"

    agent = pronk.Agent(
        start(once(call("sync"), call("task"), call("task"), call("sync"))), tools=[sync, task]
    )
    assert agent.run("?").text == "sync | task | task | sync"
    assert not ready.acquire(blocking=False)


def test_threads_are_bounded_and_hung_ones_do_not_count(start: Start) -> None:
    lock = threading.Lock()
    running = most = 0
    stop = threading.Event()

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.002)
        with lock:
            running -= 1

    @pronk.tool(timeout=0.01)
    def hang() -> None:
        stop.wait(SECONDS)

    agent = pronk.Agent(
        start(once(*[call("hang")] * 6, *[call("work")] * 20)),
        tools=[work, hang],
        max_tool_threads=3,
    )
    result = agent.run("?")
    stop.set()
    assert [each.status for each in result.results] == ["timeout"] * 6 + ["ok"] * 20
    assert 1 <= most <= 3


def test_tools_see_the_context_of_the_caller(start: Start) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("seen")

    async def task() -> str:
        return variable.get()

    agent = pronk.Agent(
        start(once(call("get"), call("task"))),
        tools=[pronk.tool(lambda: variable.get(), name="get"), task],
    )
    assert agent.run("?").text == "seen | seen"


def test_a_function_that_returns_an_awaitable(start: Start) -> None:
    async def task() -> str:
        await asyncio.sleep(0)
        return "awaited"

    agent = pronk.Agent(start(once(call("get"))), tools=[pronk.tool(lambda: task(), name="get")])
    assert agent.run("?").text == "awaited"


def test_a_thousand_calls(start: Start) -> None:
    async def task(n: int) -> int:
        await asyncio.sleep(0)
        return -n

    turns = (call("add", a=1, b=1), call("task", n=3))

    def reply(messages: list[Message]) -> str:
        done = sum(message["role"] == "tool" for message in messages)
        return "done" if done == 1000 else turns[done // 100 % 2] * 100

    pieces = [*(bytes([byte]) for byte in range(256)), *turns]
    scheduler = start(reply, n_ctx=131072, pieces=pieces)
    agent = pronk.Agent(scheduler, tools=[add, task], max_iterations=100, max_tokens=1000)
    result = agent.run("?")
    assert (result.reason, result.iterations, len(result.results)) == ("done", 11, 1000)
    assert [each.content for each in result.results] == (["2"] * 100 + ["-3"] * 100) * 5
    check_whole(agent)


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


# ---- sharing ----


def test_holding_all_permits_is_a_deadlock(start: Start) -> None:
    scheduler = start(lambda _: "x")
    agent = pronk.Agent(scheduler)
    with scheduler.acquire(), pytest.raises(pronk.DeadlockError):
        agent.run("?")

    async def main() -> None:
        async with scheduler.acquire_async():
            with pytest.raises(pronk.DeadlockError):
                await agent.run_async("?")
            # Nor could this task release it while it blocks its loop.
            with pytest.raises(pronk.DeadlockError):
                agent.run("?")

    asyncio.run(main())
    assert agent.run("?").reason == "done"


def test_tools_in_prompts_are_sorted(start: Start) -> None:
    def zebra() -> None: ...
    def ant() -> None: ...

    scheduler = start(lambda _: "x")
    names = [
        [each.name for each in pronk.Agent(scheduler, tools=tools).tools]
        for tools in ([zebra, ant, add], [add, zebra, ant])
    ]
    assert names == [["add", "ant", "zebra"]] * 2


def test_one_run_at_a_time_and_forks_beside_it(start: Start) -> None:
    scheduler = start(lambda messages: str(len(messages)), 2)
    agent = pronk.Agent(scheduler, system_prompt="S", tools=[add], max_iterations=3)
    agent.run("1")
    with agent.stream("2") as stream:
        next(stream)
        with pytest.raises(pronk.AgentBusyError, match="got a run while another"):
            agent.stream("3")
        fork = agent.fork()
        assert fork.run("3").text == "4"
    assert [m["content"] for m in fork.conversation.messages] == ["S", "1", "2", "3", "4"]
    assert agent.run("4").text == "4"
    assert repr(agent) == "<pronk.Agent of 1 tools, 5 messages>"


def test_saved_and_restored(start: Start) -> None:
    scheduler = start(once(call("add", a=1, b=1)))
    first = pronk.Agent(scheduler, system_prompt="Old", tools=[add])
    first.run("?")
    text = first.conversation.to_json()
    second = pronk.Agent(
        scheduler,
        system_prompt="New",
        tools=[add],
        conversation=pronk.Conversation.from_json(text),
    )
    second.run("again")
    messages = second.conversation.messages
    assert messages[0]["content"] == "New"
    assert messages[1 : len(first.conversation)] == first.conversation.messages[1:]
    kept = pronk.Agent(scheduler, conversation=pronk.Conversation.from_json(text))
    assert kept.conversation.messages[0]["content"] == "Old"


# ---- long histories ----


def test_old_messages_are_dropped(start: Start) -> None:
    scheduler = start(lambda messages: messages[-1]["content"] * 2)
    agent = pronk.Agent(scheduler, system_prompt="System.", context_tokens=300)
    dropped = 0
    for n in range(30):
        for event in agent.stream(f"question {n} " + "x" * 40):
            dropped += event.dropped
        messages = check_whole(agent)
        assert messages[0]["content"] == "System."
        assert messages[1]["role"] == "user"
        assert messages[-2]["content"].startswith(f"question {n} ")
    assert dropped > 20
    assert len(agent.conversation) < 30


def test_what_is_dropped_may_be_summarised(start: Start) -> None:
    scheduler = start(lambda messages: "y" * 60)
    seen: list[Message] = []

    async def summarise(messages: list[Message]) -> str:
        seen.extend(messages)
        return f"summary of {len(messages)}"

    agent = pronk.Agent(scheduler, context_tokens=300, summarise=summarise)
    for n in range(12):
        agent.run(f"question {n} " + "x" * 40)
    messages = check_whole(agent)
    assert messages[0] == {"role": "user", "content": "Summarise our conversation so far."}
    assert messages[1]["content"].startswith("summary of ")
    # Later summaries have the earlier ones to work on.
    assert any(message["content"].startswith("summary of ") for message in seen)


def test_a_run_longer_than_the_context(start: Start) -> None:
    """Without a budget, the size of the context counts; a run may be longer than that."""

    def reply(messages: list[Message]) -> str:
        counts = [int(m["content"].split()[0]) for m in messages if m["role"] == "tool"]
        return call("count", n=max(counts, default=0)) if max(counts, default=0) < 40 else "done"

    def count(n: int) -> str:
        return f"{n + 1} " + "x" * 100

    agent = pronk.Agent(start(reply, n_ctx=1024), tools=[count], max_iterations=100, max_tokens=200)
    result = agent.run("Count to 40")
    assert (result.reason, result.text, len(result.results)) == ("done", "done", 40)
    assert check_whole(agent)[0] == {"role": "user", "content": "Count to 40"}
    assert len(agent.conversation) < 40


def test_a_prompt_that_never_fits(start: Start) -> None:
    agent = pronk.Agent(start(lambda _: "x", n_ctx=64))
    with pytest.raises(pronk.ContextOverflowError):
        agent.run("\x01" * 500)
    assert check_whole(agent) == []
    assert agent.run("?").reason == "done"


# ---- arguments ----


@pytest.mark.parametrize(
    "options",
    [
        {"max_iterations": 0},
        {"max_iterations": True},
        {"max_iterations": 1.5},
        {"context_tokens": 0},
        {"max_tool_threads": 0},
        {"system_prompt": 5},
        {"tools": 5},
        {"tools": [5]},
        {"tools": [add, add]},
        {"approve": 5},
        {"summarise": "x"},
        {"conversation": []},
        {"messages": []},
    ],
)
def test_bad_arguments(start: Start, options: dict[str, Any]) -> None:
    with pytest.raises((pronk.InvalidArgumentError, pronk.InvalidTypeError), match=": got "):
        pronk.Agent(start(str), **options)


@pytest.mark.parametrize("prompt", [5, b"x", [5], [{"role": "x"}], None, []])
def test_bad_prompts(start: Start, prompt: Any) -> None:
    agent = pronk.Agent(start(str), system_prompt="S")
    with pytest.raises((pronk.InvalidArgumentError, pronk.InvalidTypeError), match=": got "):
        agent.run(prompt)
    assert agent.conversation.messages == [{"role": "system", "content": "S"}]


def test_prompts_in_other_forms(start: Start) -> None:
    agent = pronk.Agent(start(lambda messages: str(len(messages))))
    assert agent.run({"role": "user", "content": "?"}).text == "1"
    many = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
    assert agent.run(many).text == "4"
    assert agent.run(iter(many)).text == "7"


def test_partials_keep_their_secret(start: Start) -> None:
    def read(root: str, path: str) -> str:
        return f"{root}/{path}"

    def reply(messages: list[Message]) -> Any:
        asked = [("read", '{"path": "a"}'), ("read", '{"path": "a", "root": "/etc"}')]
        return asked if messages[-1]["role"] == "user" else "done"

    agent = pronk.Agent(start(reply), tools=[functools.partial(read, root="safe")])
    assert [each.status for each in agent.run("?").results] == ["ok", "invalid_arguments"]


def test_one_consumer_at_a_time(start: Start) -> None:
    stop = threading.Event()
    agent = pronk.Agent(
        start(once(call("slow"))), tools=[pronk.tool(lambda: stop.wait(SECONDS), name="slow")]
    )
    stream = agent.stream("?")
    started = threading.Event()
    kinds = []

    def consume() -> None:
        for event in stream:
            kinds.append(event.type)
            if event.type == "tool_start":
                started.set()

    thread = threading.Thread(target=consume)
    thread.start()
    started.wait(SECONDS)
    wait_until(stream._waiting.locked)  # for the tool
    with pytest.raises(pronk.Error, match="second thread or task"):
        next(stream)
    stop.set()
    thread.join(SECONDS)
    assert kinds[-1] == "completed"


def test_quiet_at_exit(child: Callable[..., Any]) -> None:
    done = child(
        """
        import sys, time
        sys.path.insert(0, sys.argv[1])
        import pronk
        from agent_rig import ScriptedScheduler, call

        def tool() -> None:
            time.sleep(60)

        async def task() -> None:
            import asyncio
            await asyncio.sleep(60)

        scheduler = ScriptedScheduler(lambda _: call("tool") + call("task"))
        agent = pronk.Agent(scheduler, tools=[tool, task])
        stream = agent.stream("?")
        for event in stream:
            if event.type == "tool_start" and event.call.name == "tool":
                break
        """,
        __file__.rpartition("/")[0],
    )
    assert done.stderr == ""
