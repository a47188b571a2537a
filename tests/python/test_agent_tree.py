"""Case H07: agents in the tools of agents, all on one scheduler. See CASES.md."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from agent_rig import Message, ScriptedScheduler, call
from conftest import wait_until

import pronk
from pronk.testing import ManualClock

Drain = Callable[[pronk.InferenceScheduler], None]

DEPTH = 3
FAN_OUT = 3
AGENTS = sum(FAN_OUT**level for level in range(DEPTH + 1))
LEAVES = FAN_OUT**DEPTH
CALLS = 2 * AGENTS - LEAVES


def reply(messages: list[Message]) -> str:
    """Ask all children at once, then add up what they found."""
    if messages[-1]["role"] == "tool":
        return str(sum(int(m["content"]) for m in messages if m["role"] == "tool"))
    level = int(messages[-1]["content"])
    return call("ask", level=level - 1) * FAN_OUT if level else "1"


def tree_in_threads(scheduler: ScriptedScheduler) -> str:
    def ask(level: int) -> str:
        return pronk.Agent(scheduler, tools=[ask]).run(str(level)).text

    return pronk.Agent(scheduler, tools=[ask]).run(str(DEPTH)).text


async def tree_in_tasks(scheduler: ScriptedScheduler) -> str:
    async def ask(level: int) -> str:
        return (await pronk.Agent(scheduler, tools=[ask]).run_async(str(level))).text

    return (await pronk.Agent(scheduler, tools=[ask]).run_async(str(DEPTH))).text


async def mixed_tree(scheduler: ScriptedScheduler) -> str:
    """Tasks whose tools block threads whose tools are tasks in loops of their own."""

    async def ask_task(level: int) -> str:
        return (await agent(level).run_async(str(level))).text

    def ask_thread(level: int) -> str:
        return agent(level).run(str(level)).text

    def agent(level: int) -> pronk.Agent:
        ask = ask_thread if level % 2 else ask_task
        return pronk.Agent(scheduler, tools=[pronk.tool(ask, name="ask")])

    return (await agent(DEPTH).run_async(str(DEPTH))).text


@pytest.mark.parametrize("max_concurrent", [1, 2, 3])
@pytest.mark.parametrize("kind", ["threads", "asyncio", "trio", "mixed"])
def test_a_tree_of_agents_finishes(
    kind: str, max_concurrent: int, drain: Drain, tmp_path: Path
) -> None:
    """H07: were a permit held over a tool, the agents in the tool would wait for ever."""
    scheduler = ScriptedScheduler(reply, max_concurrent)
    scheduler.start_trace()
    if kind == "threads":
        answer = tree_in_threads(scheduler)
    else:
        main: Any = mixed_tree if kind == "mixed" else tree_in_tasks
        answer = anyio.run(main, scheduler, backend="trio" if kind == "trio" else "asyncio")
    drain(scheduler)
    events = stop_trace(scheduler, tmp_path)
    scheduler.close()
    assert answer == str(LEAVES)
    assert scheduler.model.violations == []
    generations = [event for event in events if event["name"].startswith("generation ")]
    assert len(generations) == CALLS
    assert all(each["name"].split()[-1].isdigit() for each in generations)  # none failed
    counts = [event["args"]["active"] for event in events if event["name"] == "permits"]
    assert max(counts) <= max_concurrent


def test_no_tool_runs_inside_a_permit(drain: Drain, tmp_path: Path) -> None:
    """H07: time passes in tools alone, and the trace shows no permit held while it passes."""
    clock = ManualClock()
    scheduler = ScriptedScheduler(reply, 3, clock=clock)

    def ask(level: int) -> str:
        # The lane of an ended call settles a moment after its result is there.
        wait_until(lambda: scheduler.active_count == 0)
        clock.advance(1.0)
        # One tool at a time, so that no other agent is at its model meanwhile.
        agent = pronk.Agent(scheduler, tools=[ask], max_tool_threads=1)
        answer = agent.run(str(level)).text
        wait_until(lambda: scheduler.active_count == 0)
        clock.advance(1.0)
        return answer

    scheduler.start_trace()
    root = pronk.Agent(scheduler, tools=[ask], max_tool_threads=1)
    assert root.run(str(DEPTH)).text == str(LEAVES)
    wait_until(lambda: scheduler.active_count == 0)
    events = stop_trace(scheduler, tmp_path)
    drain(scheduler)
    scheduler.close()
    counts = [
        (event["ts"], event["args"]["active"]) for event in events if event["name"] == "permits"
    ]
    held = sum(active * (after - ts) for (ts, active), (after, _) in itertools.pairwise(counts))
    assert max(active for _, active in counts) == 1
    assert counts[-1][0] == 2e6 * (AGENTS - 1)
    assert held == 0


def stop_trace(scheduler: pronk.InferenceScheduler, folder: Path) -> list[dict[str, Any]]:
    path = folder / "trace.json"
    scheduler.stop_trace(path)
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


def test_sub_agents_in_approvals_and_summaries(drain: Drain) -> None:
    """Callbacks may ask the same scheduler too: the permit is given back before they run."""

    def model(messages: list[Message]) -> str:
        if messages[0]["content"] == "Approve.":
            return "yes"
        if messages[0]["content"] == "Summarise.":
            return "short"
        return call("act") if messages[-1]["role"] == "user" else "done"

    with ScriptedScheduler(model) as scheduler:

        def judge(_: pronk.AgentCall) -> bool:
            return pronk.Agent(scheduler, system_prompt="Approve.").run("?").text == "yes"

        def summarise(messages: list[Message]) -> str:
            return pronk.Agent(scheduler, system_prompt="Summarise.").run(str(messages)).text

        @pronk.tool(needs_approval=True)
        def act() -> str:
            return "acted"

        agent = pronk.Agent(
            scheduler, tools=[act], approve=judge, summarise=summarise, context_tokens=500
        )
        for _ in range(12):
            assert agent.run("x" * 60).text == "done"
        assert agent.conversation.messages[1]["content"] == "short"

        async def main() -> None:
            for _ in range(12):
                assert (await agent.run_async("x" * 60)).text == "done"

        anyio.run(main)
        drain(scheduler)
