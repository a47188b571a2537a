"""Random good and bad work from many threads and tasks at once, for minutes or hours.

    make soak ARGS="--minutes 60"
    make soak SANITIZE=address ARGS="--minutes 60"

At the end nothing may be lost: every request ended exactly once, every permit is back, every text
that could be known was right, every scheduler still works, and memory stopped growing after the
first third of the time. Time in which the process is stopped does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

sys.path.append(str(Path(__file__).resolve().parent / "python"))

from tiny_models import tiny_model

import pronk
from pronk.testing import FaultKind, ScriptedModel

# A guard against hangs: nothing here takes so long, with a sanitizer on a busy machine, stopped for
# some minutes, neither.
SECONDS = 1200.0
# Between two looks at the memory, and what counts at most of the time in between.
SAMPLE_SECONDS = 0.5
MOST_BETWEEN_SAMPLES = 10.0
FAULTS: list[FaultKind] = [
    "no_slot",
    "failed",
    "no_memory",
    "runtime_error",
    "bad_alloc",
    "nan_logits",
]
PROMPTS = [f"Prompt {index} " + "abc " * (index % 7) for index in range(24)]
GRAMMAR = 'root ::= "a" [b-d]{1,6}'
BAD_CALLS: list[dict[str, Any]] = [
    {"temperature": -1},
    {"temperature": float("nan")},
    {"max_tokens": -1},
    {"grammar": 'root ::= root "a"'},
    {"json_schema": {"type": "robot"}},
    {"logit_bias": {10**6: 1.0}},
    {"stop": [""]},
    {"nonsense": 1},
]


class FailureError(AssertionError):
    """What must not happen."""


class Ledger:
    """Who began, and how each ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, str] = {}
        self._next = 0
        self.ended: Counter[str] = Counter()
        self.failures: list[str] = []

    @contextlib.contextmanager
    def request(self, name: str) -> Iterator[None]:
        """Count a request: what it raises is how it ended, and only some of that is fine."""
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._open[number] = name
        how = "ok"
        try:
            yield
        except (pronk.Error, asyncio.TimeoutError) as error:
            how = type(error).__name__
            if isinstance(error, pronk.ResultTimeout):
                self.fail(f"{name}: no end after {SECONDS:.0f} s")
        except asyncio.CancelledError:
            how = "CancelledError"
        except BaseException as error:
            how = type(error).__name__
            self.fail(f"{name}: {error!r}")
        finally:
            with self._lock:
                if self._open.pop(number, None) is None:
                    self.failures.append(f"{name}: ended twice")
                self.ended[f"{name}: {how}"] += 1

    def fail(self, text: str) -> None:
        with self._lock:
            self.failures.append(text)
            first = self.failures.count(text) == 1
        if first:
            print(f"FAILED {text}", flush=True)

    @property
    def ends(self) -> int:
        """How many requests ended."""
        with self._lock:
            return sum(self.ended.values())

    def check(self) -> None:
        if self._open:
            self.failures.append(f"never ended: {Counter(self._open.values())}")
        if sum(self.ended.values()) != self._next:
            self.failures.append(f"{self._next} began, {sum(self.ended.values())} ended")


@dataclass
class Arena:
    """A scheduler, with what is known about its answers."""

    name: str
    scheduler: pronk.InferenceScheduler
    # The greedy text of so many tokens, where it does not depend on the neighbours.
    expected: Callable[[str, int], str] | None = None
    model: ScriptedModel | None = None

    def check_text(self, prompt: str, done: pronk.Completion, cancelled: bool = False) -> None:
        """Check a greedy text; one that was cut off has to be the beginning of the right one."""
        if self.expected is None:
            return
        if done.finish_reason == "cancelled" and not cancelled:
            raise FailureError(f"{self.name}: {prompt!r} was cancelled by nobody")
        right = self.expected(prompt, len(done.tokens))
        if not (right == done.text or (cancelled and right.startswith(done.text))):
            raise FailureError(f"{self.name}: {prompt!r} gave {done.text!r}, expected {right!r}")


@dataclass
class Soak:
    seed: int
    ledger: Ledger = field(default_factory=Ledger)
    arenas: list[Arena] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    samples: list[tuple[float, int]] = field(default_factory=list)

    def make_arenas(self, folder: Path) -> None:
        for layout, permits in (("batched", 4), ("isolated", 2)):
            model = ScriptedModel(seed=permits)
            scheduler = pronk.InferenceScheduler(
                permits, engine=model.engine, n_ctx=256, layout=layout
            )
            name = f"scripted {layout}"
            self.arenas.append(Arena(name, scheduler, model.expected_text, model))
        for kind, layout in (
            ("plain", "batched"),
            ("plain", "isolated"),
            ("swa", "batched"),
            ("recurrent", "batched"),
            ("hybrid", "isolated"),
        ):
            engine = pronk.InferenceEngine.load(tiny_model(kind, folder))  # type: ignore[arg-type]
            scheduler = pronk.InferenceScheduler(
                2, engine=engine, n_ctx=256, layout=layout, n_threads=1
            )
            arena = Arena(f"{kind} {layout}", scheduler)
            if layout == "isolated":
                arena.expected = self.known_texts(arena)
            self.arenas.append(arena)

    def known_texts(self, arena: Arena) -> Callable[[str, int], str]:
        """What a model says alone; in this layout neighbours change nothing."""
        known: dict[str, list[int]] = {}
        for prompt in PROMPTS:
            done = arena.scheduler.generate(
                prompt, max_tokens=16, temperature=0, ignore_eos=True, cache=False
            )
            known[prompt] = done.result(SECONDS).tokens
        engine = arena.scheduler.engine
        assert engine is not None
        return lambda prompt, n: engine.detokenize(known[prompt][:n])

    # What threads do.

    def work(self, number: int) -> None:
        rng = random.Random(f"{self.seed} thread {number}")
        jobs = [self.hold, self.stream, self.queue, self.wrong, self.leave, self.chat, self.hurry]
        while not self.over.is_set():
            job = rng.choice(jobs)
            arena = rng.choice(self.arenas)
            with self.ledger.request(job.__name__):
                job(arena, rng)

    def hold(self, arena: Arena, rng: random.Random) -> None:
        with arena.scheduler.acquire(priority=rng.randrange(3)) as permit:
            for _ in range(rng.randrange(1, 3)):
                prompt = rng.choice(PROMPTS)
                options = {"max_tokens": rng.randrange(1, 16), "temperature": 0, "ignore_eos": True}
                arena.check_text(prompt, permit.generate(prompt, **options).result(SECONDS))
            if rng.random() < 0.2:
                permit.release()

    def stream(self, arena: Arena, rng: random.Random) -> None:
        prompt = rng.choice(PROMPTS)
        with arena.scheduler.acquire() as permit:
            generation = permit.generate(prompt, max_tokens=14, temperature=0, ignore_eos=True)
            stop_at = rng.randrange(20)
            for count, _ in enumerate(generation):
                if count == stop_at:
                    generation.cancel()
                    break
            done = generation.result(SECONDS)
            arena.check_text(prompt, done, cancelled=True)

    def queue(self, arena: Arena, rng: random.Random) -> None:
        chosen = rng.choices(PROMPTS, k=rng.randrange(1, 6))
        options = {"max_tokens": 8, "temperature": 0, "ignore_eos": True}
        running = [arena.scheduler.generate(prompt, **options) for prompt in chosen]
        dropped = {index for index in range(len(running)) if rng.random() < 0.15}
        for index in dropped:
            running[index].cancel()
        failed: pronk.Error | None = None
        for index, generation in enumerate(running):
            try:
                done = generation.result(SECONDS)
            except pronk.Error as error:  # noqa: PERF203 - each is to end
                if not isinstance(error, pronk.GenerationCancelled) or index not in dropped:
                    failed = error
            else:
                arena.check_text(chosen[index], done, cancelled=index in dropped)
        if failed:
            raise failed

    def wrong(self, arena: Arena, rng: random.Random) -> None:
        kind = rng.randrange(3)
        if kind == 0:
            arena.scheduler.generate("x", **rng.choice(BAD_CALLS))
            raise FailureError("nonsense was taken")
        if kind == 1:
            arena.scheduler.generate("too long " * 500)
            raise FailureError("a prompt beyond the context was taken")
        permit = arena.scheduler.acquire()
        permit.release()
        permit.release()
        permit.generate("x")
        raise FailureError("a permit was used after its release")

    def leave(self, arena: Arena, rng: random.Random) -> None:
        """Drop a running generation, and a permit, without a word."""
        permit = arena.scheduler.acquire()
        generation = permit.generate(rng.choice(PROMPTS), max_tokens=200, ignore_eos=True)
        if rng.random() < 0.5:
            next(iter(generation), None)
        del generation, permit

    def chat(self, arena: Arena, rng: random.Random) -> None:
        messages = [{"role": "user", "content": rng.choice(PROMPTS)}]
        options: dict[str, Any] = {"max_tokens": 8, "seed": rng.randrange(100)}
        kind = rng.randrange(3)
        if kind == 0:
            options["grammar"] = GRAMMAR
        elif kind == 1:
            options["response_format"] = {"type": "json_object"}
        generation = arena.scheduler.chat(messages, **options)
        joined = "".join(delta.content or "" for delta in generation.deltas())
        message = generation.result(SECONDS).message
        if message is None or (message["content"] or "") != joined:
            raise FailureError(f"the deltas {joined!r} are not the message {message!r}")

    def hurry(self, arena: Arena, rng: random.Random) -> None:
        permit = arena.scheduler.try_acquire()
        if permit is None:
            permit = arena.scheduler.acquire(timeout=rng.random() * 0.02)
        with permit:
            permit.generate("x", max_tokens=2).result(SECONDS)

    def disturb(self) -> None:
        """Have the scripted models fail now and then; read figures meanwhile."""
        rng = random.Random(f"{self.seed} disturb")
        while not self.over.wait(rng.random() * 0.2):
            arena = rng.choice(self.arenas)
            if arena.model is not None:
                kind = rng.choice(FAULTS)
                partly = kind in ("failed", "no_memory")
                arena.model.fault(kind, applied=rng.randrange(4) if partly else 0)
            figures = arena.scheduler.statistics()
            if figures.active > arena.scheduler.max_concurrent:
                self.ledger.fail(f"{arena.name}: {figures.active} permits at once")
            if rng.random() < 0.05:
                gc.collect()

    # What tasks do.

    async def work_async(self, number: int) -> None:
        rng = random.Random(f"{self.seed} task {number}")
        jobs = [self.hold_async, self.await_async, self.impatient_async, self.wrong_async]
        while not self.over.is_set():
            job = rng.choice(jobs)
            arena = rng.choice(self.arenas)
            with self.ledger.request(job.__name__):
                if rng.random() < 0.2:
                    inner = asyncio.create_task(job(arena, rng))
                    await asyncio.sleep(rng.random() * 0.02)
                    inner.cancel()
                    await inner
                else:
                    await job(arena, rng)
            await asyncio.sleep(0)

    async def hold_async(self, arena: Arena, rng: random.Random) -> None:
        prompt = rng.choice(PROMPTS)
        async with arena.scheduler.acquire_async(priority=rng.randrange(3)) as permit:
            generation = permit.generate(prompt, max_tokens=12, temperature=0, ignore_eos=True)
            async with contextlib.aclosing(pieces(generation)) as texts:
                stop_at = rng.randrange(16)
                async for _ in texts:
                    stop_at -= 1
                    if stop_at == 0:
                        generation.cancel()
            arena.check_text(prompt, await generation, cancelled=True)

    async def await_async(self, arena: Arena, rng: random.Random) -> None:
        prompt = rng.choice(PROMPTS)
        options = {"max_tokens": 8, "temperature": 0, "ignore_eos": True}
        arena.check_text(prompt, await arena.scheduler.generate(prompt, **options))

    async def impatient_async(self, arena: Arena, rng: random.Random) -> None:
        async def job() -> None:
            async with arena.scheduler.acquire_async() as permit:
                await permit.generate(rng.choice(PROMPTS), max_tokens=30, ignore_eos=True)

        await asyncio.wait_for(job(), rng.random() * 0.05)

    async def wrong_async(self, arena: Arena, rng: random.Random) -> None:
        async with arena.scheduler.acquire_async() as permit:
            await permit.generate("x", **rng.choice(BAD_CALLS))
        raise FailureError("nonsense was taken")

    async def run_tasks(self, count: int) -> None:
        tasks = [asyncio.create_task(self.work_async(number)) for number in range(count)]
        done = await asyncio.gather(*tasks, return_exceptions=True)
        for each in done:
            if isinstance(each, BaseException):
                self.ledger.fail(f"a task ended with {each!r}")

    # The run as a whole.

    def wait(self, seconds: float) -> None:
        """Let them work for so long, not counting the time in which the process is stopped."""
        worked, last, reported = 0.0, time.monotonic(), 0.0
        while worked < seconds and not self.over.wait(SAMPLE_SECONDS):
            now = time.monotonic()
            worked += min(now - last, MOST_BETWEEN_SAMPLES)
            last = now
            self.samples.append((worked, resident_bytes()))
            if worked - reported >= 60:
                reported = worked
                print(
                    f"{worked / 60:5.1f} min, {self.ledger.ends:8} requests, "
                    f"{self.samples[-1][1] / 1e6:6.0f} MB",
                    flush=True,
                )

    def run(self, seconds: float, n_threads: int, n_tasks: int) -> None:
        threads = [
            threading.Thread(target=self.work, args=(number,), daemon=True)
            for number in range(n_threads)
        ]
        threads.append(threading.Thread(target=self.disturb, daemon=True))
        threads.append(
            threading.Thread(target=lambda: asyncio.run(self.run_tasks(n_tasks)), daemon=True)
        )
        threading.excepthook = lambda args: self.ledger.fail(f"a thread died: {args.exc_value!r}")
        for thread in threads:
            thread.start()
        with contextlib.suppress(KeyboardInterrupt):
            self.wait(seconds)
        self.over.set()
        deadline = time.monotonic() + SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self.ledger.fail("a thread did not end")
        self.ledger.check()

    def check_arenas(self) -> None:
        gc.collect()
        for arena in self.arenas:
            scheduler = arena.scheduler
            deadline = time.monotonic() + SECONDS
            while scheduler.active_count or scheduler.waiting_count:
                if time.monotonic() > deadline:
                    self.ledger.fail(f"{arena.name}: not at rest: {scheduler.statistics()}")
                    break
                time.sleep(0.001)
            figures = scheduler.statistics()
            if figures.acquired != figures.released or figures.waiting:
                self.ledger.fail(f"{arena.name}: permits do not add up: {figures}")
            if figures.high_water > scheduler.max_concurrent:
                self.ledger.fail(f"{arena.name}: {figures.high_water} permits at once")
            permits = [scheduler.try_acquire() for _ in range(scheduler.max_concurrent)]
            if None in permits or scheduler.try_acquire() is not None:
                self.ledger.fail(f"{arena.name}: permits were lost or doubled")
            del permits
            if arena.model is not None:
                arena.model.clear_faults()
            with self.ledger.request("canary"):
                done = scheduler.generate(
                    PROMPTS[0], max_tokens=8, temperature=0, ignore_eos=True
                ).result(SECONDS)
                arena.check_text(PROMPTS[0], done)
            if not scheduler.close(timeout=SECONDS):
                self.ledger.fail(f"{arena.name}: close() gave up")
            if arena.model is not None and (
                arena.model.violations or arena.model.counters.contexts_alive
            ):
                self.ledger.fail(f"{arena.name}: {arena.model.violations or 'a context is left'}")

    def check_memory(self, allowed: int) -> str:
        """Compare the last sixth of the time with the second third, after the warm-up."""
        if not self.samples:
            return "no samples"
        end = self.samples[-1][0]
        early = [size for at, size in self.samples if end / 3 <= at <= end / 2]
        late = [size for at, size in self.samples if at >= end * 5 / 6]
        if not early or not late:
            return "too short to tell"
        grown = statistics.median(late) - statistics.median(early)
        if grown > allowed:
            self.ledger.fail(f"memory grew by {grown / 1e6:.1f} MB after the warm-up")
        return f"{statistics.median(late) / 1e6:.0f} MB, {grown / 1e6:+.1f} MB after the warm-up"


async def pieces(generation: pronk.Generation) -> AsyncIterator[str]:
    async for piece in generation:
        yield piece


def resident_bytes() -> int:
    """What the process has in memory now."""
    import psutil

    return int(psutil.Process(os.getpid()).memory_info().rss)


def main(
    minutes: Annotated[float, typer.Option(help="For how long.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="A fresh one without.")] = None,
    threads: Annotated[int, typer.Option(help="Threads that work.")] = 16,
    tasks: Annotated[int, typer.Option(help="Tasks of one event loop that work.")] = 100,
    allowed_mb: Annotated[
        float, typer.Option(help="Growth of memory after the warm-up; sanitizers need more.")
    ] = 24.0,
) -> None:
    """Work at random for a while, then check that nothing was lost. Ends with 1 where it was."""
    seed = time.time_ns() // 1000 if seed is None else seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pronk-soak-") as folder:
        soak = Soak(seed)
        soak.make_arenas(Path(folder))
        soak.run(60 * minutes, threads, tasks)
        soak.check_arenas()
    memory = soak.check_memory(int(allowed_mb * 1e6))
    for how, count in sorted(soak.ledger.ended.items()):
        print(f"{count:8} {how}")
    print(f"{sum(soak.ledger.ended.values())} requests; memory: {memory}")
    for failure, count in Counter(soak.ledger.failures).most_common(30):
        print(f"FAILED {count} x {failure}")
    raise typer.Exit(1 if soak.ledger.failures else 0)


if __name__ == "__main__":
    typer.run(main)
