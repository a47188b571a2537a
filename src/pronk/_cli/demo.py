"""``pronk demo``: many agents, a few permits, one model."""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pronk
from pronk._cli.console import stderr_console, stdout_console
from pronk._cli.demo_agent import TOPICS, AgentPlan, DemoAgent, Tally
from pronk._cli.demo_board import Board, new_board
from pronk._cli.demo_gauge import Gauge
from pronk._cli.demo_report import Report
from pronk._cli.engine import load_engine
from pronk._cli.outcome import Interrupted

_REFRESH_SECONDS = 0.1
_SETTLE_SECONDS = 5.0
# Far apart, so that no two agents ever sample with the same seed.
_SEED_STRIDE = 10_000


@dataclass(frozen=True)
class DemoOptions:
    """The options of ``pronk demo``, as the command line gave them."""

    agents: int
    turns: int
    max_concurrent: int
    max_tokens: int
    tool_time: float
    temperature: float
    seed: int
    model: Path | None
    layout: str | None
    n_ctx: int | None
    n_gpu_layers: str
    n_threads: int | None
    as_json: bool
    debug: bool


def run_demo(options: DemoOptions) -> bool:
    """Run the demo and print its summary.

    Returns:
        Whether every agent finished and the figures add up.
    """
    engine = load_engine(options.model, options.n_gpu_layers, debug=options.debug)
    console = stderr_console() if options.as_json else stdout_console()
    tallies = [
        Tally(f"agent {number + 1}", TOPICS[number % len(TOPICS)])
        for number in range(options.agents)
    ]
    with pronk.InferenceScheduler(max_concurrent=options.max_concurrent) as scheduler:
        _init_pool(scheduler, engine, options)
        gauge, stop = Gauge(), threading.Event()
        board = new_board(console, tallies, options.turns, scheduler)
        plan = AgentPlan(
            turns=options.turns,
            max_tokens=options.max_tokens,
            n_ctx=scheduler.statistics().n_ctx,
            tool_time=options.tool_time,
            temperature=options.temperature,
        )
        agents = [
            DemoAgent(
                tally,
                plan,
                seed=options.seed + number * _SEED_STRIDE,
                engine=engine,
                scheduler=scheduler,
                gauge=gauge,
                stop=stop,
                changed=board.changed,
            )
            for number, tally in enumerate(tallies)
        ]
        started = time.monotonic()
        _run_to_the_end(agents, board, scheduler, stop)
        wall_seconds = time.monotonic() - started
        report = Report(
            tallies, _settled_statistics(scheduler), options.turns, gauge.peak, wall_seconds
        )
    if options.as_json:
        sys.stdout.write(json.dumps(report.as_dict(), indent=2) + "\n")
    else:
        report.print_to(console)
    return report.sound


def _init_pool(
    scheduler: pronk.InferenceScheduler, engine: pronk.InferenceEngine, options: DemoOptions
) -> None:
    n_ctx, n_threads = options.n_ctx, options.n_threads
    if options.layout is None:
        scheduler.init_pool(engine, n_ctx, n_threads=n_threads)
    else:
        scheduler.init_pool(engine, n_ctx, n_threads=n_threads, layout=options.layout)


def _run_to_the_end(
    agents: list[DemoAgent],
    board: Board,
    scheduler: pronk.InferenceScheduler,
    stop: threading.Event,
) -> None:
    try:
        with board:
            for agent in agents:
                agent.thread.start()
            while any(agent.thread.is_alive() for agent in agents):
                board.refresh()
                time.sleep(_REFRESH_SECONDS)
    except BaseException as error:
        stop.set()
        scheduler.close(timeout=_SETTLE_SECONDS)
        if isinstance(error, KeyboardInterrupt):
            turns = sum(agent.tally.turns_finished for agent in agents)
            raise Interrupted(f"interrupted after {turns} finished turns") from None
        raise


def _settled_statistics(scheduler: pronk.InferenceScheduler) -> pronk.Statistics:
    """Return the statistics once the last permit is back: releasing one never blocks."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while scheduler.active_count > 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    return scheduler.statistics()
