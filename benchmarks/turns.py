"""Agents in turns, a thread each, on one side."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from benchmarks.peers.client import Client, Open


def makespan(
    open_: Open,
    agents: Sequence[Callable[[Client], None]],
    warm_up: Callable[[Client], None],
) -> float:
    """Return the seconds from the start of the first agent to the end of the last.

    What an agent raises is raised again, after all have ended.
    """
    errors: list[BaseException] = []

    def run(agent: Callable[[Client], None], client: Client) -> None:
        try:
            agent(client)
        except BaseException as error:  # noqa: BLE001 - raised again by the main thread
            errors.append(error)

    with open_() as client:
        warm_up(client)  # a first call of anything is slow
        threads = [threading.Thread(target=run, args=(agent, client)) for agent in agents]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - begin
    if errors:
        raise errors[0]
    return seconds
