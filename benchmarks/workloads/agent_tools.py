"""Agents that call tools: JSON under a schema, turn by turn, over a common system prompt."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import jsonschema  # type: ignore[import-untyped]

from benchmarks import shop_tools
from benchmarks.json_shapes import Record, grammar
from benchmarks.peers.choice import best_setting, packages
from benchmarks.peers.client import Client, Open, Rules
from benchmarks.peers.llama_server import ServerSetting, open_server
from benchmarks.peers.pronk_client import open_pronk
from benchmarks.record import Case, Figure, Goal, Metric, Result, Sample, at_least
from benchmarks.runner import alternate
from benchmarks.settings import Settings
from benchmarks.streams import STREAM_METRICS, Watch, random_tokens, summary
from benchmarks.turns import makespan

SUMMARY = "8 agents in 4 tool calls each over 4 permits, JSON under a schema, against the same"

METRICS = [
    Metric("makespan", "makespan", "s", "lower"),
    Metric("calls", "tool calls", "calls/s", "higher"),
    Metric("tokens", "tokens generated", "tokens", "higher"),
    Metric("text", "characters of the calls", "characters", "higher"),
    Metric("valid", "valid calls", "%", "higher"),
    *STREAM_METRICS,
]
NOTES = [
    "In each turn an agent writes a call, one JSON object, whose tool then returns three records. "
    "The call follows a grammar that is the same text on all sides, made from the JSON schema "
    "(`json_shapes.py`), since each side's own converter of schemas allows other white space. It "
    "fixes the structure and the lengths of texts and numbers, so that all sides write calls of "
    "about one length; what a tool returns does not depend on the call. Every call is checked "
    "against the schema with the package jsonschema: one that is not valid ends the run. In the "
    "second case each side makes a grammar of the schema itself, as its users would.",
    "Prompts are token ids of real text, decoding is greedy. Every side starts without a known "
    "prompt, the model loaded, and is asked by one thread per agent. Times are those that the "
    "agent sees. A gap is the time between two pieces of text, of which one may hold several "
    "tokens. Tokens generated: without the end token, which some sides need to see the end of a "
    "call. Calls of the same text differ in them: where only one text can follow, pronk takes the "
    "tokens that the tokenizer makes of it, the others those that their model likes best one by "
    "one, which are more and shorter.",
]

WARM_UP = Rules(grammar='root ::= "yes" | "no"')

# Of llama-server, each tried on top of the best so far: those that may matter here.
OPTIONS = (("-fa", "off"), ("-cram", "0"))


@dataclass(frozen=True)
class Plan:
    agents: int
    turns: int
    permits: int
    tool_seconds: float
    system: str
    call: Record
    n_ctx: int
    most: int = 256
    """Tokens of a call that no call reaches."""

    def as_json(self) -> dict[str, Any]:
        return {**self.__dict__, "call": self.call.schema(), "grammar": grammar(self.call)}


FULL = Plan(8, 4, 4, 0.05, system=shop_tools.system_prompt(), call=shop_tools.CALL, n_ctx=2560)
QUICK = Plan(2, 2, 2, 0.01, system="Call a tool.", call=shop_tools.SHORT_CALL, n_ctx=1024)


class InvalidCallError(Exception):
    """A side did not keep to the schema."""


def run(settings: Settings) -> Result:
    plan = QUICK if settings.quick else FULL
    result = Result("agent_tools", "Agents that call tools", notes=list(NOTES))
    sides: dict[str, Open] = {
        "pronk": partial(open_pronk, settings, permits=plan.permits, n_ctx=plan.n_ctx)
    }
    goals: dict[str, Goal] = {"llama-server": at_least(2.5)}
    if settings.peers:
        plain, n = ServerSetting(plan.permits), plan.agents
        best = best_setting(
            settings,
            result,
            lambda open_: _run_once(settings, plan, open_)["makespan"],
            n_ctx=plan.n_ctx,
            shapes=[
                plain,
                plain.but("-kvu"),
                ServerSetting(n, pinned=True),
                ServerSetting(n, ("-kvu",), pinned=True),
            ],
            options=OPTIONS,
        )
        sides["llama-server"] = partial(open_server, settings, plain, n_ctx=plan.n_ctx)
        sides["llama-server, best setting"] = partial(open_server, settings, best, n_ctx=plan.n_ctx)
        sides |= packages(settings, result, slots=plan.permits, n_ctx=plan.n_ctx)
    else:
        result.skipped.append("all peers: run with --no-peers")

    runs = {name: partial(_run_once, settings, plan, open_) for name, open_ in sides.items()}
    label = f"{plan.agents} agents, {plan.turns} calls, {plan.permits} permits"
    samples = alternate(settings, label, runs)
    case = Case(label, METRICS, samples, plan.as_json())
    for side in list(sides)[1:]:
        case.compare(side, "makespan", goals.get(side))
        case.compare(side, "gap_p99")
        case.compare(side, "first_median")
        _compare_lengths(case, side)
    result.cases.append(case)
    if settings.peers:
        result.cases.append(_own_readings(settings, plan, label, sides))
    return result


def _own_readings(settings: Settings, plan: Plan, label: str, sides: dict[str, Open]) -> Case:
    """The same with the schema instead of the grammar, ours against the plain server."""
    label += ", schema instead of grammar"
    rules = Rules(schema=plan.call.schema())
    runs = {
        name: partial(_run_once, settings, plan, sides[name], rules)
        for name in ("pronk", "llama-server")
    }
    case = Case(label, METRICS, alternate(settings, label, runs), plan.as_json())
    case.compare("llama-server", "makespan")
    _compare_lengths(case, "llama-server")
    return case


def _compare_lengths(case: Case, side: str) -> None:
    """How fair it is: shorter calls would be less work."""
    for key, label in (("text", "characters of the calls"), ("tokens", "tokens generated")):
        pairs = zip(case.series("pronk", key), case.series(side, key), strict=True)
        values = [ours / theirs for ours, theirs in pairs]
        case.figures.append(Figure(f"{label}, over those of {side}", values))


def _run_once(settings: Settings, plan: Plan, open_: Open, rules: Rules | None = None) -> Sample:
    engine = settings.engine
    rules = rules or Rules(grammar=grammar(plan.call))
    schema = plan.call.schema()

    def tokens_of(text: str) -> list[int]:
        return engine.tokenize(text, add_special=False, parse_special=True)

    system = tokens_of(f"<|im_start|>system\n{plan.system}<|im_end|>\n")
    watches: list[list[Watch]] = [[] for _ in range(plan.agents)]
    calls: list[list[list[int]]] = [[] for _ in range(plan.agents)]

    def agent(who: int, client: Client) -> None:
        history = system + tokens_of(_turn("user", shop_tools.question(who)))
        for turn in range(plan.turns):
            watch = Watch()
            call = client.complete(who, history, plan.most, watch.tick, rules)
            while call and not engine.detokenize(call[-1:]):
                call.pop()  # the end token
            check(engine.detokenize(call), schema)
            watches[who].append(watch)
            calls[who].append(call)
            time.sleep(plan.tool_seconds)
            returned = _turn("tool", shop_tools.records(who, turn))
            history += call + tokens_of(f"<|im_end|>\n{returned}")

    def warm_up(client: Client) -> None:
        # This prompt has nothing in common with the others, nor has the grammar.
        prompt = random_tokens("warm", engine.n_vocab)(16)
        client.complete(0, prompt, 4, lambda: None, WARM_UP)

    seconds = makespan(open_, [partial(agent, who) for who in range(plan.agents)], warm_up)
    n_calls = sum(map(len, calls))
    return {
        "makespan": seconds,
        "calls": n_calls / seconds,
        "tokens": sum(len(call) for own in calls for call in own),
        "text": sum(len(engine.detokenize(call)) for own in calls for call in own),
        "valid": 100 * n_calls / (plan.agents * plan.turns),
        **summary([watch for own in watches for watch in own]),
    }


def check(text: str, schema: dict[str, Any]) -> None:
    """Raise InvalidCallError unless a text is a call under the schema."""
    try:
        jsonschema.validate(json.loads(text), schema)
    except (ValueError, jsonschema.ValidationError) as error:
        reason = str(error).partition("\n")[0]
        raise InvalidCallError(
            f"call: got {text!r}, expected one of the schema: {reason}"
        ) from None


def _turn(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n<|im_start|>assistant\n"
