"""Where the time of a decode step goes, and how far it is from what the machine can do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from statistics import fmean, median

import pronk
from benchmarks import peaks
from benchmarks.model_cost import ModelCost, model_cost
from benchmarks.peers.client import Client
from benchmarks.peers.pronk_client import open_pronk
from benchmarks.record import Case, Figure, Metric, Result, Sample
from benchmarks.roofline import limit
from benchmarks.runner import Run, alternate
from benchmarks.settings import Settings
from benchmarks.streams import random_tokens
from benchmarks.timeline import Timeline, recorded
from benchmarks.workloads import agents

SUMMARY = "where a step's time goes; bytes and operations of a step against what the machine can do"

MACHINE = "this machine"
MACHINE_METRICS = [
    Metric("read", "read, a model's size", "GB/s", "higher"),
    Metric("read_large", "read, 1 GiB", "GB/s", "higher"),
    Metric("copy", "copy, 1 GiB", "GB/s", "higher"),
    Metric("multiply", "float32 matrices", "GFLOP/s", "higher"),
    Metric("prefill", "a prompt through the model", "GFLOP/s", "higher"),
]
STEP_METRICS = [
    Metric("step", "step", "s", "lower"),
    Metric("batch", "llama_decode", "s", "lower"),
    Metric("sample", "choose, hand out", "s", "lower"),
    Metric("detokenize", "of which text, at most", "s", "lower"),
    Metric("rest", "own, in the step", "s", "lower"),
    Metric("after", "own, between steps", "s", "lower"),
    Metric("bytes", "read", "MB", "lower"),
    Metric("operations", "operations", "GFLOP", "lower"),
]
AGENT_METRICS = [
    Metric("makespan", "makespan", "s", "lower"),
    *(
        Metric(key, label, "%", "lower")
        for key, label in (
            ("permit", "of an agent's time: waits for a permit"),
            ("queued", "waits for its first step"),
            ("prefill", "prompt"),
            ("decode", "decoding"),
            ("tool", "tools"),
            ("other", "the rest, mostly after its last turn"),
            ("loop_decode", "of the loop's time: steps that only decode"),
            ("loop_mixed", "steps with prompt tokens beside streams"),
            ("loop_prompt", "steps with prompt tokens alone"),
            ("loop_between", "between steps"),
            ("loop_llama", "in llama_decode"),
            ("reused", "of all prompt tokens: reused"),
        )
    ),
]
NOTES = [
    "Steps: those of a trace in which all permits decode and no prompt is evaluated, the mean of a "
    "run. Between steps the loop publishes its counters and wakes the readers. Text: the time that "
    "engine.detokenize takes for the tokens of a step, each by itself, called from Python.",
    "Read and operations are computed from the model file: all matrices once per step, keys and "
    "values as llama.cpp goes through them, in multiples of 256 cells, and two operations for "
    "each element that a token is multiplied with. Logits, norms and intermediate results are "
    "left out.",
    "The machine: the best of several trials in as many threads as pronk computes with. Reading "
    "is numpy's dot product of an array with itself; one the size of the model's matrices may fit "
    "into a cache, which then holds them between steps too. The prompt has 512 tokens and "
    "n_batch=512: what llama.cpp reaches where arithmetic is all that counts.",
    "The limit of a step is the longer one of two times: to read its bytes at the rate of 'read, a "
    "model's size', to do its operations at the rate of the prompt. The figures are the time of a "
    "step over it, in the same round.",
]
N_PROMPT = 64


def run(settings: Settings) -> Result:
    widths = (1, 2) if settings.quick else (1, 2, 4, 8, 16)
    result = Result("limits", "Where the time goes", notes=list(NOTES))
    types = {key: settings.pool[key] for key in ("type_k", "type_v") if key in settings.pool}
    cost = model_cost(settings.engine, settings.model_path, types)
    names = {f"{width} permit{'s' * (width > 1)}": width for width in widths}
    sides: dict[str, Run] = {MACHINE: partial(_machine, settings, cost)}
    sides |= {name: partial(_step, settings, cost, width) for name, width in names.items()}
    samples = alternate(settings, "limits", sides)
    machine = samples.pop(MACHINE)
    result.cases.append(
        Case("the machine", MACHINE_METRICS, {MACHINE: machine}, {"threads": settings.n_threads})
    )
    steps = Case("a step of decoding", STEP_METRICS, samples, dict(cost.__dict__))
    for name in names:
        values = [
            sample["step"] / limit(sample, of)
            for sample, of in zip(samples[name], machine, strict=True)
        ]
        steps.figures.append(Figure(f"a step of {name} over its limit", values))
    result.cases.append(steps)
    plan = agents.QUICK if settings.quick else agents.FULL
    label = f"{plan.agents} agents, {plan.turns} turns, {plan.permits} permits"
    lived = alternate(settings, label, {"pronk": partial(_agents, settings, plan)})
    result.cases.append(Case(label, AGENT_METRICS, lived, dict(plan.__dict__)))
    return result


def _machine(settings: Settings, cost: ModelCost) -> Sample:
    n = 32 if settings.quick else 512
    rates = peaks.measure(settings.n_threads, cost.weight_bytes, quick=settings.quick)
    draw = random_tokens("prefill", settings.engine.n_vocab)
    options = {**settings.pool, "n_batch": n}
    with pronk.InferenceScheduler(1) as scheduler:
        scheduler.init_pool(settings.engine, n_ctx=n + 8, **options)
        seconds = min(
            scheduler.generate(draw(n), max_tokens=1, temperature=0).result().timings.prefill
            for _ in range(4)
        )
    return {
        **{key: rate / 1e9 for key, rate in rates.items()},
        "prefill": cost.prefill_operations(n) / seconds / 1e9,
    }


def _step(settings: Settings, cost: ModelCost, width: int) -> Sample:
    n_decode = 8 if settings.quick else 128
    draw = random_tokens(("limits", width), settings.engine.n_vocab)
    prompts = [draw(N_PROMPT) for _ in range(width)]
    with pronk.InferenceScheduler(width) as scheduler:
        scheduler.init_pool(settings.engine, n_ctx=N_PROMPT + n_decode + 1, **settings.pool)
        kv = scheduler.statistics().kv
        permits = [scheduler.acquire() for _ in range(width)]
        _generate(permits, prompts, 1)
        with recorded(scheduler) as timeline:
            tokens = _generate(permits, prompts, n_decode)
        for permit in permits:
            permit.release()
    steps = [s for s in timeline.steps if s.decode_tokens == width and s.prompt_tokens == 0]
    context = N_PROMPT + n_decode
    return {
        "step": fmean(s.seconds for s in steps),
        "batch": fmean(s.batch for s in steps),
        "sample": fmean(s.sample for s in steps),
        "detokenize": width * _detokenize(settings.engine, tokens),
        "rest": fmean(s.rest for s in steps),
        # The median: where a generation ends, what follows it is no longer a step like the others.
        "after": median(s.after for s in steps if s.after is not None),
        "bytes": cost.bytes(kv, width, context) / 1e6,
        "operations": cost.operations(kv, width, context) / 1e9,
    }


def _generate(permits: list[pronk.InferencePermit], prompts: list[list[int]], n: int) -> list[int]:
    running = [
        permit.generate(prompt, max_tokens=n, temperature=0, ignore_eos=True)
        for permit, prompt in zip(permits, prompts, strict=True)
    ]
    return [token for generation in running for token in generation.result().tokens]


def _detokenize(engine: pronk.InferenceEngine, tokens: list[int]) -> float:
    """Seconds a token."""
    begin = time.perf_counter()
    for token in tokens:
        engine.detokenize([token])
    return (time.perf_counter() - begin) / len(tokens)


def _agents(settings: Settings, plan: agents.Plan) -> Sample:
    timelines: list[Timeline] = []
    counted: list[pronk.Statistics] = []

    @contextmanager
    def open_recorded() -> Iterator[Client]:
        with open_pronk(settings, permits=plan.permits, n_ctx=plan.n_ctx) as client:
            with recorded(client.scheduler) as timeline:
                yield client
            timelines.append(timeline)
            counted.append(client.scheduler.statistics())

    makespan = agents.run_once(settings, plan, open_recorded)["makespan"]
    (timeline,), (statistics,) = timelines, counted
    # The first generation and the first wait are those of the warm-up.
    lives, waits = timeline.lives[1:], timeline.waits[1:]
    begin = min(life.begin - life.queued for life in lives)
    steps = [step for step in timeline.steps if step.begin >= begin]
    agent_seconds = makespan * plan.agents
    of_agents = {
        "permit": sum(waits),
        "queued": sum(life.queued for life in lives),
        "prefill": sum(life.prefill for life in lives),
        "decode": sum(life.decode for life in lives),
        "tool": plan.agents * plan.turns * plan.tool_seconds,
    }
    of_agents["other"] = agent_seconds - sum(of_agents.values())
    of_loop = {
        "loop_decode": sum(s.seconds for s in steps if not s.prompt_tokens),
        "loop_mixed": sum(s.seconds for s in steps if s.prompt_tokens and s.decode_tokens),
        "loop_prompt": sum(s.seconds for s in steps if s.prompt_tokens and not s.decode_tokens),
        "loop_llama": sum(s.batch for s in steps),
    }
    of_loop["loop_between"] = makespan - sum(s.seconds for s in steps)
    return {
        "makespan": makespan,
        **{key: 100 * seconds / agent_seconds for key, seconds in of_agents.items()},
        **{key: 100 * seconds / makespan for key, seconds in of_loop.items()},
        "reused": 100 * statistics.reused_tokens / statistics.prompt_tokens,
    }
