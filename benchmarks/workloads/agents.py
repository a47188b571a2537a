"""Agents in turns over a common system prompt: what pronk is for."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

from benchmarks.peers.choice import best_setting, packages
from benchmarks.peers.client import Client, Open
from benchmarks.peers.llama_server import ServerSetting, open_server
from benchmarks.peers.pronk_client import open_pronk
from benchmarks.record import Case, Goal, Metric, Result, Sample, at_least, at_most
from benchmarks.runner import alternate
from benchmarks.settings import Settings
from benchmarks.streams import STREAM_METRICS, Watch, random_tokens, summary
from benchmarks.turns import makespan

SUMMARY = "8 agents in 4 turns each over 4 permits, against llama-server and Python packages"

MAKESPAN = Metric("makespan", "makespan", "s", "lower")
METRICS = [MAKESPAN, Metric("rate", "tokens generated", "tokens/s", "higher"), *STREAM_METRICS]
NOTES = [
    "Every side starts without a known prompt, the model loaded, and is asked by one thread per "
    "agent. Prompts are random token ids, greedy decoding runs past end tokens, so that all sides "
    "compute the same number of tokens. Times are those that the agent sees: the wait for a permit "
    "or a slot counts.",
]


@dataclass(frozen=True)
class Plan:
    agents: int
    turns: int
    permits: int
    system: int
    """Tokens of the common system prompt."""
    new: int
    """Tokens that come in before each turn."""
    generated: int
    """Tokens that each turn generates."""
    tool_seconds: float

    @property
    def n_ctx(self) -> int:
        need = self.system + self.turns * (self.new + self.generated)
        return -(-need // 1024) * 1024


FULL = Plan(8, 4, 4, system=600, new=60, generated=48, tool_seconds=0.05)
QUICK = Plan(3, 2, 2, system=40, new=8, generated=6, tool_seconds=0.01)

OPTIONS = (
    ("-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0"),
    ("-cram", "0"),
    ("--cache-reuse", "64"),
)
"""Of llama-server, each tried on top of the best so far."""


def run(settings: Settings) -> Result:
    plan = QUICK if settings.quick else FULL
    result = Result("agents", "Agents with a common system prompt", notes=list(NOTES))
    sides: dict[str, Open] = {
        "pronk": partial(open_pronk, settings, permits=plan.permits, n_ctx=plan.n_ctx)
    }
    goals: dict[str, Goal] = {}
    if settings.peers:
        plain = ServerSetting(plan.permits)
        best = best_setting(
            settings,
            result,
            lambda open_: run_once(settings, plan, open_)["makespan"],
            n_ctx=plan.n_ctx,
            shapes=_shapes(plain, plan.agents),
            options=OPTIONS,
        )
        sides["llama-server"] = partial(open_server, settings, plain, n_ctx=plan.n_ctx)
        sides["llama-server, best setting"] = partial(open_server, settings, best, n_ctx=plan.n_ctx)
        goals |= {"llama-server": at_least(2.0), "llama-server, best setting": at_least(1.7)}
        sides |= packages(settings, result, slots=plan.permits, n_ctx=plan.n_ctx)
        goals["llama-cpp-python"] = at_least(2.2)
    else:
        result.skipped.append("all peers: run with --no-peers")

    runs = {name: partial(run_once, settings, plan, open_) for name, open_ in sides.items()}
    label = f"{plan.agents} agents, {plan.turns} turns, {plan.permits} permits"
    samples = alternate(settings, label, runs)
    case = Case(label, METRICS, samples, {**plan.__dict__, "n_ctx": plan.n_ctx})
    for side in list(sides)[1:]:
        case.compare(side, "makespan", goals.get(side))
        case.compare(side, "gap_p99", at_least(4.0) if side == "llama-server" else None)
        case.compare(side, "first_median")
    case.derive(
        "gap, 99th percentile over median, ours",
        lambda sample: sample["gap_p99"] / sample["gap_median"],
        goal=at_most(5.0),
    )
    result.cases.append(case)
    return result


def _shapes(plain: ServerSetting, n: int) -> list[ServerSetting]:
    shapes = [plain, ServerSetting(n), ServerSetting(n, ("-kvu",))]
    # Which cache is best depends on it.
    return [*shapes, *(shape.but("-fa", "off") for shape in shapes)]


def run_once(settings: Settings, plan: Plan, open_: Open) -> Sample:
    n_vocab = settings.engine.n_vocab
    system = random_tokens("system", n_vocab)(plan.system)
    watches: list[list[Watch]] = [[] for _ in range(plan.agents)]

    def agent(who: int, client: Client) -> None:
        draw = random_tokens(("agent", who), n_vocab)
        history = list(system)
        for _ in range(plan.turns):
            history += draw(plan.new)
            watch = Watch()
            tokens = client.complete(who, history, plan.generated, watch.tick)
            if len(tokens) != plan.generated:
                raise RuntimeError(f"got {len(tokens)} tokens, expected {plan.generated}")
            watches[who].append(watch)
            history += tokens
            time.sleep(plan.tool_seconds)

    def warm_up(client: Client) -> None:
        # This prompt has nothing in common with the others.
        client.complete(0, random_tokens("warm", n_vocab)(16), 4, lambda: None)

    seconds = makespan(open_, [partial(agent, who) for who in range(plan.agents)], warm_up)
    generated = plan.agents * plan.turns * plan.generated
    flat = [watch for own in watches for watch in own]
    return {"makespan": seconds, "rate": generated / seconds, **summary(flat)}
