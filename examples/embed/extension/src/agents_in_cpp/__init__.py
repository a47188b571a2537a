"""Agents that are C++ threads, over a scheduler that Python made."""

import pronk  # first: its library is then found wherever it is installed
from agents_in_cpp._agents import run_agents as _run_agents

__all__ = ["run_agents"]


def run_agents(
    scheduler: pronk.InferenceScheduler, tasks: list[str], *, turns: int = 2, max_tokens: int = 32
) -> list[pronk.Completion]:
    """Give each task to an agent of its own and return what each said last.

    Raises:
        pronk.Error: What ended an agent. The others are stopped.
    """
    return _run_agents(scheduler, tasks, turns, max_tokens)
