"""Work for which memory runs out at some point: an allocation fails, wherever that is."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tiny_models import MEMORY_KINDS, tiny_model

import pronk
from fuzz import corpus
from fuzz.world import BrokenError, finish

JOBS = ("load", "pool", "generate", "grammar", "chat", "template", "tokenize", "all")


class Starved:
    def __init__(self, scratch: Path) -> None:
        self.paths = {kind: tiny_model(kind, scratch) for kind in MEMORY_KINDS}
        self.engines = {kind: pronk.InferenceEngine.load(path) for kind, path in self.paths.items()}

    def make(self, rng: random.Random) -> bytes:
        unit = rng.choice([1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26])
        case = {
            "job": rng.choice(JOBS),
            "kind": rng.choice(MEMORY_KINDS),
            "bytes": rng.randrange(12) * unit,
            "layout": rng.choice(["batched", "isolated"]),
            "n_ctx": rng.choice([64, 1024, 8192]),
            "n_threads": rng.choice([1, 2]),
        }
        return json.dumps(case).encode()

    def run(self, data: bytes) -> None:
        case = json.loads(data)
        engine = self.engines[case["kind"]]
        options = {key: case[key] for key in ("layout", "n_ctx", "n_threads")}
        job = case["job"]
        with contextlib.ExitStack() as stack:
            scheduler = stack.enter_context(pronk.InferenceScheduler(2))
            if job not in ("pool", "all"):
                scheduler.init_pool(engine, **options)
            try:
                with little_memory(case["bytes"]):
                    if job in ("load", "all"):
                        engine = pronk.InferenceEngine.load(
                            self.paths[case["kind"]], use_mmap=False
                        )
                    if job in ("pool", "all"):
                        scheduler.init_pool(engine, **options)
                    if job not in ("load", "pool"):
                        self.work(job, scheduler, engine)
            except MemoryError as error:
                if not isinstance(error, pronk.Error):
                    return  # Python's own memory may run out as well
                raise

    def work(
        self, job: str, scheduler: pronk.InferenceScheduler, engine: pronk.InferenceEngine
    ) -> None:
        options: dict[str, Any] = {"max_tokens": 12, "seed": 1, "ignore_eos": True}
        if job == "tokenize":
            engine.tokenize("\n" * 20_000 + "ab c" * 20_000)
        elif job == "template":
            engine.render_chat(corpus.MESSAGES, tools=corpus.TOOLS)
        elif job == "chat":
            tools = {"tools": corpus.TOOLS, "tool_choice": "required"}
            finish(scheduler.chat([{"role": "user", "content": "x"}], **tools, **options))
        elif job == "grammar":
            finish(scheduler.generate("x", grammar='root ::= ("a" | [b-z])*', **options))
        else:
            running = [scheduler.generate(f"{index} a prompt", **options) for index in range(4)]
            for generation in running:
                finish(generation)

    def settle(self) -> None:
        engine = self.engines["plain"]
        with pronk.InferenceScheduler(1, engine=engine, n_ctx=64, n_threads=1) as scheduler:
            done = finish(scheduler.generate("abc", max_tokens=2, ignore_eos=True))
            if len(done.tokens) != 2:
                raise BrokenError(f"afterwards a generation gave {done}")


@contextlib.contextmanager
def little_memory(left: int) -> Iterator[None]:
    """Allow so many bytes of address space more than are in use."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (in_use + left, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def make_kind(scratch: Path) -> Starved:
    return Starved(scratch)
