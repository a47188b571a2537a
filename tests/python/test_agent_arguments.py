"""What agents are made with and asked."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from agent_rig import SECONDS, Message, Start, add, call, once
from conftest import wait_until

import pronk


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


@pytest.mark.parametrize("scheduler", [None, 5, "x", object()])
def test_no_scheduler(scheduler: Any) -> None:
    with pytest.raises(pronk.InvalidTypeError, match=r"scheduler: got .*expected a pronk"):
        pronk.Agent(scheduler)


@pytest.mark.parametrize("seconds", [0, -1, True, "5", float("nan"), float("inf"), 1e10, 10**400])
def test_no_time(seconds: Any) -> None:
    with pytest.raises(pronk.InvalidArgumentError, match=r"timeout: got .*expected seconds"):
        pronk.tool(add, timeout=seconds)


def test_a_very_long_time(start: Start) -> None:
    agent = pronk.Agent(
        start(once(call("add", a=1, b=2))), tools=[pronk.tool(add, timeout=3_000_000_000)]
    )
    assert agent.run("?").text == "3"


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
