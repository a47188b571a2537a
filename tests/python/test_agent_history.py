"""Agents with one another and with long histories."""

from __future__ import annotations

import asyncio

import pytest
from agent_rig import Message, Start, add, call, check_whole, once

import pronk


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
