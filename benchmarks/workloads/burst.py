"""A long prompt arrives while streams run: how long do they stand still?"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import partial

from benchmarks.peers.client import Client, Open
from benchmarks.peers.llama_server import ServerSetting, open_server
from benchmarks.peers.pronk_client import open_pronk
from benchmarks.record import Case, Metric, Result, Sample, at_least, at_most, quantile
from benchmarks.runner import alternate
from benchmarks.settings import Settings
from benchmarks.streams import Watch, gap_summary, random_tokens

SUMMARY = "a prompt of 2,000 tokens arrives while three streams run, against llama-server"

METRICS = [
    Metric("calm_median", "gap before, median", "s", "lower"),
    Metric("gap_median", "gap, median", "s", "lower"),
    Metric("gap_p99", "gap, 99th percentile", "s", "lower"),
    Metric("gap_worst", "gap, longest", "s", "lower"),
    Metric("first", "first token of the long prompt", "s", "lower"),
]
NOTES = [
    "Gaps: all that overlap the time from the arrival of a long prompt to its first "
    "token, over all streams and prompts of a run. Before: those up to the first arrival.",
    "A server that does the whole prompt in one go has few gaps, one long one per "
    "stream: there the 99th percentile is the longest.",
]


@dataclass(frozen=True)
class Plan:
    streams: int
    prompts: int
    """Long prompts, one after the other."""
    length: int
    """Tokens of a long prompt."""
    calm: int
    """Tokens of each stream before the first long prompt."""
    stream_tokens: int
    """Most tokens of a stream: enough that it outlasts the long prompts."""


FULL = Plan(3, prompts=3, length=2000, calm=40, stream_tokens=2000)
QUICK = Plan(2, prompts=1, length=100, calm=4, stream_tokens=200)


class _EnoughError(Exception):
    """Ends a stream."""


def run(settings: Settings) -> Result:
    plan = QUICK if settings.quick else FULL
    n_ctx = -(-(plan.length + plan.stream_tokens) // 1024) * 1024 if not settings.quick else 512
    permits = plan.streams + 1
    result = Result("burst", "A long prompt on running streams", notes=list(NOTES))
    sides: dict[str, Open] = {"pronk": partial(open_pronk, settings, permits=permits, n_ctx=n_ctx)}
    if settings.peers:
        server = partial(open_server, settings, n_ctx=n_ctx)
        sides["llama-server"] = partial(server, ServerSetting(permits))
        # What its users can do about the pauses: smaller batches.
        sides["llama-server -b 64"] = partial(
            server, ServerSetting(permits, ("-b", "64", "-ub", "64"))
        )
    else:
        result.skipped.append("llama-server: run with --no-peers")
    label = f"{plan.length:,} tokens arrive on {plan.streams} streams"
    runs = {name: partial(_run_once, settings, plan, open_) for name, open_ in sides.items()}
    case = Case(label, METRICS, alternate(settings, label, runs), {**plan.__dict__, "n_ctx": n_ctx})
    for side in list(sides)[1:]:
        case.compare(side, "gap_p99", at_least(4.0) if side == "llama-server" else None)
        case.compare(side, "gap_worst")
        case.compare(side, "first")
    case.derive(
        "gap, 99th percentile over median, ours",
        lambda sample: sample["gap_p99"] / sample["gap_median"],
        goal=at_most(5.0),
    )
    case.derive(
        "gap, 99th percentile over median before, ours",
        lambda sample: sample["gap_p99"] / sample["calm_median"],
    )
    result.cases.append(case)
    return result


def _run_once(settings: Settings, plan: Plan, open_: Open) -> Sample:
    n_vocab = settings.engine.n_vocab
    enough = threading.Event()
    ready = threading.Semaphore(0)
    watches = [Watch() for _ in range(plan.streams)]
    errors: list[BaseException] = []

    def stream(client: Client, who: int) -> None:
        def tick() -> None:
            watches[who].tick()
            if len(watches[who].arrivals) == plan.calm:
                ready.release()
            if enough.is_set():
                raise _EnoughError

        try:
            prompt = random_tokens(("stream", who), n_vocab)(20)
            client.complete(who, prompt, plan.stream_tokens, tick)
            errors.append(RuntimeError("a stream ended before the long prompts did"))
        except _EnoughError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by the main thread
            errors.append(error)
        finally:
            ready.release()

    meanwhile: list[float] = []
    with open_() as client:
        client.complete(0, random_tokens("warm", n_vocab)(16), 4, lambda: None)
        threads = [
            threading.Thread(target=stream, args=(client, who)) for who in range(plan.streams)
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in threads:
                ready.acquire()
            begin, spans, firsts = time.perf_counter(), [], []
            for index in range(plan.prompts):
                long = Watch()
                prompt = random_tokens(("long", index), n_vocab)(plan.length)
                client.complete(plan.streams, prompt, 1, long.tick)
                spans.append((long.asked, long.arrivals[0]))
                firsts.append(long.first)
                time.sleep(0 if settings.quick else 0.5)
        finally:
            enough.set()
            for thread in threads:
                thread.join()
    if errors:
        raise errors[0]
    for watch in watches:
        for span in spans:
            meanwhile += watch.gaps_during(*span)
    calm = [gap for watch in watches for gap in watch.gaps_during(0.0, begin)]
    return {
        "calm_median": quantile(calm, 0.5),
        **gap_summary(meanwhile),
        "first": quantile(firsts, 0.5),
    }
