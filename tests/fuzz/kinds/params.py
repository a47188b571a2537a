"""Calls with arguments that nobody in their right mind passes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tiny_models import tiny_model

import pronk
from fuzz import mutate
from fuzz.world import SECONDS, World, finish
from pronk.testing import ScriptedModel

# What JSON has no spelling for; in a mutant {"odd": 3} is the fourth of them.
ODD: list[Callable[[], Any]] = [
    object,
    lambda: b"bytes",
    lambda: {1, 2},
    lambda: 1j,
    lambda: int,
    lambda: iter([1]),
    lambda: range(3),
    lambda: (1, "a"),
    lambda: memoryview(b"abc"),
    lambda: type("Index", (), {"__index__": lambda self: 3})(),
    lambda: type("BrokenIndex", (), {"__index__": lambda self: 1 // 0})(),
    lambda: 10**400,
    lambda: -(10**400),
    lambda: Path("x"),
    lambda: {1: 1.0, 2: float("-inf")},
    lambda: {-1: 1.0},
    lambda: {1: float("nan")},
    lambda: {10**9: 0.0},
]
BROKEN_INDEX = 10
WORDS = [
    "auto",
    "on",
    "off",
    "batched",
    "isolated",
    "shared",
    "split",
    "f16",
    "q8_0",
    "q4_0",
    "f99",
]

# By call: its keywords, each with values that are good; None is left out.
SAMPLING: dict[str, list[Any]] = {
    "max_tokens": [1, 3, None],
    "temperature": [0, 0.8, 100],
    "top_k": [0, 1, 40],
    "top_p": [0.1, 1],
    "min_p": [0, 0.5, 1],
    "repeat_penalty": [1, 1.3],
    "frequency_penalty": [0, -2.5],
    "presence_penalty": [0, 3],
    "penalty_last_n": [-1, 0, 64],
    "seed": [0, 7, None],
    "logit_bias": [None, {}],
    "ignore_eos": [True, False],
    "stop": ["a", ["a", "b"], []],
    "logprobs": [None, True, 3],
    "cache": [True, False],
    "cache_scope": ["", "x"],
    "grammar": ['root ::= "a"'],
    "json_schema": [{}, {"type": "null"}],
    "priority": [0, 5],
}
POOL: dict[str, list[Any]] = {
    "n_ctx": [64, 256, None],
    "layout": ["batched", "isolated"],
    "kv": ["auto", "shared", "split"],
    "n_batch": [8, 64, None],
    "n_threads": [1, 2, None],
    "flash_attention": ["auto", "on", "off"],
    "type_k": ["f16", "f32", "q8_0"],
    "type_v": ["f16", "f32"],
    "n_cached": [0, 3, None],
    "cache_tokens": [None, 0, 100],
    "max_step_ms": [50, 1],
}
CALLS: dict[str, dict[str, list[Any]]] = {
    "generate": SAMPLING,
    "permit": SAMPLING,
    "chat": SAMPLING
    | {"response_format": [None, {"type": "json_object"}], "tool_choice": ["auto"]},
    "pool": POOL,
    "real_pool": POOL,
    "scheduler": POOL | {"max_concurrent": [1, 2], "max_waiting": [1, None]},
    "acquire": {"timeout": [0, None, 1.5], "priority": [0, 1]},
    "load": {
        "n_gpu_layers": ["auto", 0],
        "use_mmap": [True, False],
        "check_tensors": [True, False],
        "vocab_only": [True, False],
        "progress": [None, False],
    },
    "tokenize": {"text": ["abc"], "add_special": [True], "parse_special": [False]},
    "detokenize": {"tokens": [[97, 98]], "special": [True]},
    "resize": {"max_concurrent": [1, 2]},
    "close": {"drain": [True, False], "timeout": [None, 0, 1]},
    "trace": {"max_events": [1, 1000]},
}


class Params:
    def __init__(self, scratch: Path) -> None:
        self.world = World(n_ctx=256)
        self.path = tiny_model("plain", scratch)
        self.tiny = pronk.InferenceEngine.load(self.path)

    def make(self, rng: random.Random) -> bytes:
        name = rng.choice([*CALLS, "generate", "permit", "chat"])
        keywords = CALLS[name]
        chosen = rng.sample(sorted(keywords), min(len(keywords), rng.randrange(1, 6)))
        odd = set(rng.sample(chosen, rng.choice([0, 1, 1, 1, len(chosen)])))
        arguments = {key: value(rng) if key in odd else rng.choice(keywords[key]) for key in chosen}
        if rng.random() < 0.03:
            arguments[mutate.odd_text(rng, WORDS)] = 1
        return json.dumps({"call": name, "arguments": arguments}).encode()

    def run(self, data: bytes) -> None:
        case = json.loads(data)
        arguments = {key: revived(each) for key, each in case["arguments"].items()}
        unknown = set(arguments) - set(CALLS[case["call"]])
        try:
            getattr(self, case["call"])(arguments)
        except TypeError:
            if not unknown:
                raise  # one of pronk's own is a pronk.Error too
        except ZeroDivisionError:
            if {"odd": BROKEN_INDEX} not in case["arguments"].values():
                raise

    def settle(self) -> None:
        self.world.settle()

    def generate(self, arguments: dict[str, Any]) -> None:
        finish(self.world.scheduler.generate("abc", **arguments))

    def permit(self, arguments: dict[str, Any]) -> None:
        arguments.pop("priority", None)
        with self.world.scheduler.acquire() as permit:
            finish(permit.generate("abc", **arguments))

    def chat(self, arguments: dict[str, Any]) -> None:
        finish(self.world.scheduler.chat([{"role": "user", "content": "Hi"}], **arguments))

    def pool(self, arguments: dict[str, Any], engine: pronk.InferenceEngine | None = None) -> None:
        with pronk.InferenceScheduler(2) as scheduler:
            scheduler.init_pool(engine or ScriptedModel().engine, **arguments)
            finish(scheduler.generate("abc", max_tokens=2))

    def real_pool(self, arguments: dict[str, Any]) -> None:
        self.pool(arguments, self.tiny)

    def scheduler(self, arguments: dict[str, Any]) -> None:
        permits = arguments.pop("max_concurrent", 2)
        with pronk.InferenceScheduler(permits, engine=ScriptedModel().engine, **arguments) as made:
            finish(made.generate("abc", max_tokens=2))

    def acquire(self, arguments: dict[str, Any]) -> None:
        self.world.scheduler.acquire(**arguments).release()

    def load(self, arguments: dict[str, Any]) -> None:
        pronk.InferenceEngine.load(self.path, **arguments).tokenize("abc")

    def tokenize(self, arguments: dict[str, Any]) -> None:
        self.tiny.tokenize(arguments.pop("text", "abc"), **arguments)

    def detokenize(self, arguments: dict[str, Any]) -> None:
        self.tiny.detokenize(arguments.pop("tokens", [97]), **arguments)

    def resize(self, arguments: dict[str, Any]) -> None:
        scheduler = pronk.InferenceScheduler(2)
        scheduler.resize(arguments.pop("max_concurrent"), **arguments)
        scheduler.acquire().release()

    def close(self, arguments: dict[str, Any]) -> None:
        scheduler = pronk.InferenceScheduler(2, engine=ScriptedModel().engine, n_ctx=64)
        running = scheduler.generate("abc", max_tokens=4)
        scheduler.close(**arguments)
        running.result(SECONDS)

    def trace(self, arguments: dict[str, Any]) -> None:
        with pronk.InferenceScheduler(1) as scheduler:
            scheduler.start_trace(**arguments)
            scheduler.acquire().release()
            scheduler.stop_trace("/dev/null")


def value(rng: random.Random) -> Any:
    kind = rng.randrange(6)
    if kind == 0:
        return mutate.integer(rng)
    if kind == 1:
        return rng.choice(mutate.FLOATS)
    if kind == 2:
        return {"odd": rng.randrange(len(ODD))}
    if kind == 3:
        return rng.choice(WORDS)
    if kind == 4:
        return mutate.odd_text(rng, WORDS)
    return mutate.odd_json(rng, WORDS)


def revived(each: Any) -> Any:
    if isinstance(each, dict) and list(each) == ["odd"]:
        return ODD[each["odd"] % len(ODD)]()
    return each


def make_kind(scratch: Path) -> Params:
    return Params(scratch)
