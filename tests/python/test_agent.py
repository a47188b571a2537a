"""Agents in threads: the loop, its events, and what the model is told of its tools."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
import time
from typing import Any

import pydantic
import pytest
from agent_rig import SECONDS, Message, Start, add, call, check_whole, once, told

import pronk


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
    events = list(agent.stream("?"))
    plain = json.loads(json.dumps([event.asdict() for event in events]))
    assert plain[-1]["completion"]["text"] == "error: MuteError: "
    assert plain[-1]["completion"]["results"][0]["exception"] == "MuteError: "


class Sum(pydantic.BaseModel):
    value: int


def test_an_answer_under_a_schema(start: Start) -> None:
    agent = pronk.Agent(start(lambda _: '{"value": 5}'), response_format=Sum, max_tokens=99)
    result = agent.run("2 + 3?")
    assert (result.reason, result.parsed) == ("done", Sum(value=5))
    assert result.completion is not None
    assert result.completion.text == result.text
    cut = pronk.Agent(start(lambda _: '{"value": 5}'), response_format=Sum, max_tokens=3)
    assert (cut.run("?").reason, cut.run("?").parsed) == ("length", None)
    free = pronk.Agent(start(lambda _: '{"value": 5}'))
    assert free.run("?").parsed is None


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
