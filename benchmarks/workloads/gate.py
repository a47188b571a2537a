"""The gate alone, against Python's semaphores; and what streaming costs the program."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise

import pronk
import pronk.testing
from benchmarks.gates import Enter, anyio_gate, asyncio_gate, pronk_gate
from benchmarks.record import Case, Figure, Metric, Result, Sample, at_least, at_most
from benchmarks.runner import Run, alternate
from benchmarks.settings import Settings
from benchmarks.streams import random_tokens

SUMMARY = (
    "acquire and release against threading.Semaphore, asyncio.Semaphore, anyio.CapacityLimiter"
)

COST = Metric("cost", "cost of one", "s", "lower")
CPU = Metric("cpu", "CPU of the reading thread for a token", "s", "lower")
PACE = Metric("pace", "pace of a counting thread", "counts/s", "higher")


def run(settings: Settings) -> Result:
    result = Result("gate", "The gate alone")
    result.notes = [
        "Hand-over between threads: every acquisition goes to the other thread. pronk's gate does "
        "that by itself, since nobody barges in; the other threads pass two semaphores to and fro.",
        "Delivery: CPU time of the event loop's thread per token, scripted engine at 2 ms a step, "
        "8 streams. The peer is what one would write by hand: call_soon_threadsafe and a queue.",
        "Counting thread: increments of a Python loop while 4 permits generate on one compute "
        "thread, over the same without.",
    ]
    result.cases.append(_uncontended(settings))
    result.cases.append(_uncontended_async(settings, result))
    result.cases.append(_two_threads(settings))
    result.cases.append(_many_tasks(settings))
    result.cases.append(_delivery(settings))
    result.cases.append(_counting(settings))
    return result


# ---- one thread, a free permit ----


def _uncontended(settings: Settings) -> Case:
    n = 2_000 if settings.quick else 200_000

    def ours() -> Sample:
        acquire = pronk.InferenceScheduler(1).acquire
        begin = time.perf_counter()
        for _ in range(n):
            acquire().release()
        return {"cost": (time.perf_counter() - begin) / n}

    def theirs() -> Sample:
        semaphore = threading.Semaphore(1)
        acquire, release = semaphore.acquire, semaphore.release
        begin = time.perf_counter()
        for _ in range(n):
            acquire()
            release()
        return {"cost": (time.perf_counter() - begin) / n}

    def ours_with() -> Sample:
        acquire = pronk.InferenceScheduler(1).acquire
        begin = time.perf_counter()
        for _ in range(n):
            with acquire():
                pass
        return {"cost": (time.perf_counter() - begin) / n}

    def theirs_with() -> Sample:
        semaphore = threading.Semaphore(1)
        begin = time.perf_counter()
        for _ in range(n):
            with semaphore:
                pass
        return {"cost": (time.perf_counter() - begin) / n}

    label = "acquire and release, uncontended"
    sides = {
        "pronk": ours,
        "threading.Semaphore": theirs,
        "pronk, with": ours_with,
        "threading.Semaphore, with": theirs_with,
    }
    case = Case(label, [COST], alternate(settings, label, sides), {"times": n})
    case.compare("threading.Semaphore", "cost", at_least(2.0))
    case.compare("threading.Semaphore, with", "cost", ours="pronk, with")
    return case


def _uncontended_async(settings: Settings, result: Result) -> Case:
    n = 2_000 if settings.quick else 100_000

    def cost(make: Callable[[int], Enter]) -> Sample:
        async def main() -> float:
            enter = make(1)
            begin = time.perf_counter()
            for _ in range(n):
                async with enter():
                    pass
            return time.perf_counter() - begin

        return {"cost": asyncio.run(main()) / n}

    sides: dict[str, Run] = {
        "pronk": partial(cost, pronk_gate),
        "asyncio.Semaphore": partial(cost, asyncio_gate),
    }
    if importlib.util.find_spec("anyio") is not None:
        sides["anyio.CapacityLimiter"] = partial(cost, anyio_gate)
    else:
        result.skipped.append("anyio.CapacityLimiter: not installed: pip install anyio")
    label = "async with, uncontended"
    case = Case(label, [COST], alternate(settings, label, sides), {"times": n})
    for side in list(sides)[1:]:
        case.compare(side, "cost", at_least(1.0) if side == "asyncio.Semaphore" else None)
    return case


# ---- hand-over ----


def _two_threads(settings: Settings) -> Case:
    n = 200 if settings.quick else 20_000  # hand-overs

    def ours() -> Sample:
        scheduler = pronk.InferenceScheduler(1)
        order: list[int] = []

        def work(me: int) -> None:
            for _ in range(n // 2):
                with scheduler.acquire():
                    order.append(me)
                    # Only a hand-over counts: wait until the other one stands in line.
                    while scheduler.waiting_count == 0 and len(order) < n - 1:
                        time.sleep(0)

        seconds = _time_threads(partial(work, 0), partial(work, 1))
        changes = sum(a != b for a, b in pairwise(order))
        if changes < n - 2:
            raise RuntimeError(f"hand-over: got {changes} changes of thread, expected {n - 1}")
        return {"cost": seconds / n}

    def theirs() -> Sample:
        mine, other = threading.Semaphore(1), threading.Semaphore(0)

        def work(wait: threading.Semaphore, wake: threading.Semaphore) -> None:
            for _ in range(n // 2):
                wait.acquire()
                wake.release()

        return {"cost": _time_threads(partial(work, mine, other), partial(work, other, mine)) / n}

    label = "hand-over between 2 threads"
    sides = {"pronk": ours, "threading.Semaphore": theirs}
    case = Case(label, [COST], alternate(settings, label, sides), {"times": n})
    case.compare("threading.Semaphore", "cost", at_least(1.0))
    return case


def _time_threads(*bodies: Callable[[], None]) -> float:
    threads = [threading.Thread(target=body) for body in bodies]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin


def _many_tasks(settings: Settings) -> Case:
    tasks, times = (50, 4) if settings.quick else (1000, 20)

    def cost(make: Callable[[int], Enter]) -> Sample:
        async def main() -> float:
            enter = make(1)

            async def task() -> None:
                for _ in range(times):
                    async with enter():
                        await asyncio.sleep(0)

            begin = time.perf_counter()
            await asyncio.gather(*[task() for _ in range(tasks)])
            return time.perf_counter() - begin

        return {"cost": asyncio.run(main()) / (tasks * times)}

    label = f"hand-over between {tasks:,} tasks"
    sides = {
        "pronk": partial(cost, pronk_gate),
        "asyncio.Semaphore": partial(cost, asyncio_gate),
    }
    case = Case(label, [COST], alternate(settings, label, sides), {"tasks": tasks, "times": times})
    case.compare("asyncio.Semaphore", "cost", at_least(1.0))
    return case


# ---- what streams cost the program ----

STREAMS = 8
STEP_SECONDS = 0.002


def _delivery(settings: Settings) -> Case:
    n_tokens = 20 if settings.quick else 500

    def timed(main: Callable[[], Awaitable[int]]) -> Sample:
        async def around() -> float:
            begin = time.thread_time()
            pieces = await main()
            return (time.thread_time() - begin) / pieces

        return {"cpu": asyncio.run(around())}

    def ours() -> Sample:
        model = pronk.testing.ScriptedModel(pieces=[f"w{i} " for i in range(1000)])
        with pronk.InferenceScheduler(STREAMS, engine=model.engine, n_ctx=1024) as scheduler:
            scheduler.generate([1], max_tokens=1).result()
            model.set_delay(STEP_SECONDS)

            async def read(who: int) -> int:
                pieces = 0
                stream = scheduler.generate([who, 1, 2], max_tokens=n_tokens, ignore_eos=True)
                async for _ in stream:
                    pieces += 1
                return pieces

            async def main() -> int:
                return sum(await asyncio.gather(*[read(who) for who in range(STREAMS)]))

            return timed(main)

    def theirs() -> Sample:
        async def main() -> int:
            loop = asyncio.get_running_loop()
            queues: list[asyncio.Queue[str | None]] = [asyncio.Queue() for _ in range(STREAMS)]

            def produce() -> None:
                for index in range(n_tokens + 1):
                    time.sleep(STEP_SECONDS)
                    for queue in queues:
                        piece = "w " if index < n_tokens else None
                        loop.call_soon_threadsafe(queue.put_nowait, piece)

            async def read(queue: asyncio.Queue[str | None]) -> int:
                pieces = 0
                while await queue.get() is not None:
                    pieces += 1
                return pieces

            producer = threading.Thread(target=produce)
            producer.start()
            pieces = sum(await asyncio.gather(*[read(queue) for queue in queues]))
            producer.join()
            return pieces

        return timed(main)

    label = f"delivery to {STREAMS} asyncio streams"
    sides = {"pronk": ours, "call_soon_threadsafe": theirs}
    case = Case(label, [CPU], alternate(settings, label, sides), {"tokens": n_tokens})
    case.compare("call_soon_threadsafe", "cpu")
    case.derive("CPU for a token, ours", lambda s: s["cpu"] * 1e6, unit="us", goal=at_most(10.0))
    return case


def _counting(settings: Settings) -> Case:
    seconds = 0.1 if settings.quick else 5.0

    def count() -> Sample:
        counted, end = 0, time.perf_counter() + seconds
        begin = time.perf_counter()
        while time.perf_counter() < end:
            for _ in range(1000):
                counted += 1
        return {"pace": counted / (time.perf_counter() - begin)}

    def beside() -> Sample:
        engine = pronk.testing.ScriptedModel().engine if settings.quick else settings.engine
        draw = random_tokens("counting", engine.n_vocab) if not settings.quick else None
        with pronk.InferenceScheduler(4) as scheduler:
            scheduler.init_pool(engine, n_ctx=2048, n_threads=1)
            running = []
            for who in range(4):
                prompt = draw(8) if draw else [who]
                running.append(scheduler.generate(prompt, max_tokens=2000, ignore_eos=True))
            time.sleep(0.05 if settings.quick else 0.5)  # past the prompts
            sample = count()
            if not settings.quick and any(generation.done for generation in running):
                raise RuntimeError("counting: a generation ended early, expected all to run on")
            for generation in running:
                generation.cancel()
        return sample

    label = "a counting thread beside 4 generations"
    sides = {"beside 4 generations": beside, "alone": count}
    case = Case(label, [PACE], alternate(settings, label, sides), {"seconds": seconds})
    pairs = zip(
        case.series("beside 4 generations", "pace"), case.series("alone", "pace"), strict=True
    )
    share = [a / b for a, b in pairs]
    case.figures.append(Figure("pace beside over alone", share, goal=at_least(0.95)))
    return case
