"""The trace through the whole stack: what a viewer is given."""

from __future__ import annotations

import collections
import errno
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pronk
from pronk.testing import ManualClock, ScriptedModel

Event = dict[str, Any]
GREEDY: Any = {"temperature": 0.0}


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    model = ScriptedModel()
    yield model
    assert model.violations == []


def open_trace(path: Path) -> list[Event]:
    """Load a trace as a viewer would, and check it against the rules of the format."""
    trace = json.loads(path.read_text(encoding="ascii"))
    assert trace["otherData"] == {
        "producer": f"pronk {pronk.__version__}",
        "dropped_events": "0",
    }
    events: list[Event] = trace["traceEvents"]
    begun: collections.Counter[tuple[object, ...]] = collections.Counter()
    named = set()
    for event in events:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert event["ts"] >= 0
        phase = event["ph"]
        if phase == "M":
            named.add(event["tid"])
            continue
        if phase == "X":
            assert event["dur"] >= 0
            assert event["tid"] in named
        elif phase in "be":
            key = (event["cat"], event["id"], event["name"])
            begun[key] += 1 if phase == "b" else -1
            assert begun[key] in (0, 1), "an end without a begin, or a second begin"
        else:
            assert phase == "C"
            assert all(isinstance(value, int) for value in event["args"].values())
    assert not +begun, "a begin without an end"
    check_nesting([event for event in events if event["ph"] == "X"])
    return events


def check_nesting(spans: list[Event]) -> None:
    """Spans of one track lie side by side or within one another, in the order of the file."""
    open_until: dict[int, list[float]] = collections.defaultdict(list)
    for span in spans:
        stack = open_until[span["tid"]]
        end = round(span["ts"] + span["dur"], 3)
        while stack and stack[-1] <= span["ts"]:
            stack.pop()
        assert not stack or end <= stack[-1]
        stack.append(end)


def named(events: list[Event], name: str, phase: str = "X") -> list[Event]:
    return [event for event in events if event["name"] == name and event["ph"] == phase]


def test_exact_spans(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    clock = ManualClock()
    model = ScriptedModel(clock=clock)
    model.set_delay(0.010, 0.001)
    scheduler = pronk.InferenceScheduler(
        1, engine=model.engine, n_ctx=64, n_batch=4, kv="shared", clock=clock
    )
    with scheduler:
        scheduler.start_trace()
        model.hold()
        first = scheduler.generate("abcdef", max_tokens=2, **GREEDY)
        second = scheduler.generate("abcdeg", max_tokens=1, **GREEDY)
        assert model.wait_held()
        clock.advance(0.5)  # falls into the first decode, which is held at its entry
        model.resume()
        assert first.result(timeout=60).usage.completion_tokens == 2
        assert second.result(timeout=60).usage.cached_tokens == 5
    scheduler.stop_trace(path)  # a closed scheduler has nothing more to add
    assert not scheduler.tracing

    events = open_trace(path)
    spans = [
        (e["name"], e["ts"], e["dur"], e["args"].get("tokens"), e["args"].get("cached_tokens"))
        for e in events
        if e["ph"] == "X" and e["tid"] > 1
    ]
    assert spans == [
        ("generation 1", 0.0, 537_000.0, None, 0),
        ("prefill", 0.0, 514_000.0, 4, 0),
        ("prefill", 514_000.0, 12_000.0, 2, 0),
        ("decode", 526_000.0, 11_000.0, None, None),
        ("generation 2", 537_000.0, 11_000.0, None, 5),
        ("prefill", 537_000.0, 11_000.0, 1, 5),
    ]
    assert [e["args"]["result"] for e in events if e["name"].startswith("generation")] == [
        "length",
        "length",
    ]
    queued = {e["id"]: e["ts"] for e in named(events, "queued", "e")}
    assert queued == {"1": 0.0, "2": 537_000.0}
    assert [e["args"]["tokens"] for e in named(events, "step")] == [4, 2, 1, 1]
    assert [e["args"]["prompt_tokens"] for e in named(events, "batch")] == [4, 2, 0, 1]
    assert [e["args"]["active"] for e in named(events, "permits", "C")][-1] == 0
    pool = named(events, "pool", "C")[-1]["args"]
    # Five cells in common, then "fx" of the first and "g" of the second.
    assert pool == {"kv_tokens": 13, "kv_cells": 8, "cached_sequences": 2, "running": 0}


def test_cancelled_and_failed_are_marked(model: ScriptedModel, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64) as scheduler:
        scheduler.start_trace()
        with scheduler.acquire() as permit:

            def give_up() -> None:
                with pytest.raises(pronk.AcquireTimeout):
                    scheduler.acquire(timeout=0)

            other = threading.Thread(target=give_up)
            other.start()
            other.join()
            scheduler.generate("never", **GREEDY).cancel()
            model.hold()
            running = permit.generate("hello", **GREEDY)
            assert model.wait_held()
            running.cancel()
            model.resume()
            assert running.result(timeout=60).finish_reason == "cancelled"
            model.fault("failed", times=2)
            with pytest.raises(pronk.BackendError):
                permit.generate("hello", **GREEDY).result(timeout=60)
    scheduler.stop_trace(path)
    names = {event["name"] for event in open_trace(path)}
    assert names >= {
        "wait for permit (timed_out)",
        "wait for permit (cancelled)",
        "queued (cancelled)",
        "generation 2 (cancelled)",
        "generation 3 (failed)",
        "batch (failed)",
    }


def test_a_held_step_holds_up_nothing(model: ScriptedModel, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with pronk.InferenceScheduler(2, engine=model.engine, n_ctx=64) as scheduler:
        model.hold()
        scheduler.start_trace()
        running = scheduler.generate("hello", max_tokens=4, **GREEDY)
        queued = [scheduler.generate("hello", max_tokens=4, **GREEDY) for _ in range(3)]
        assert model.wait_held()
        statistics = scheduler.statistics()
        assert (statistics.active, statistics.waiting) == (2, 2)
        assert statistics.seconds_since_progress >= 0
        assert statistics.steps == 0
        scheduler.stop_trace(path)
        generation = named(open_trace(path), "generation 1")
        assert [event["args"]["result"] for event in generation] == ["running"]
        model.resume()
        for one in [running, *queued]:
            assert one.result(timeout=60).finish_reason == "length"


def test_age_of_the_last_progress() -> None:
    clock = ManualClock()
    model = ScriptedModel(clock=clock)
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64, clock=clock) as scheduler:
        assert scheduler.statistics().seconds_since_progress == 0
        model.hold()
        generation = scheduler.generate("hello", max_tokens=4, **GREEDY)
        assert model.wait_held()
        clock.advance(7)
        assert scheduler.statistics().seconds_since_progress == 7
        model.resume()
        generation.result(timeout=60)
    assert scheduler.statistics().seconds_since_progress == 0


def test_why_a_prefix_was_not_reused() -> None:
    model = ScriptedModel(memory_kind="recurrent")
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64) as scheduler:
        for prompt in ("system one", "system two"):
            scheduler.generate(prompt, max_tokens=1, **GREEDY).result(timeout=60)
    statistics = scheduler.statistics()  # after the last step has ended
    assert statistics.reuse_refused == 1
    assert "recurrent" in statistics.reuse_refused_reason
    assert statistics.kv_reason
    assert statistics.flash_attention == "off"
    assert statistics.flash_attention_reason
    assert (statistics.type_k, statistics.type_v) == ("f16", "f16")
    assert statistics.kv_type_reason
    assert statistics.kv_cells <= statistics.cached_sequences + 1


def test_misuse(tmp_path: Path) -> None:
    scheduler = pronk.InferenceScheduler(1)
    path = tmp_path / "run.json"
    with pytest.raises(pronk.InvalidArgumentError, match="start_trace"):
        scheduler.stop_trace(path)
    assert not path.exists()
    for bad in (0, -1, 2**26 + 1):
        with pytest.raises(pronk.InvalidArgumentError, match="max_events"):
            scheduler.start_trace(max_events=bad)
    wrong: list[Any] = [True, 1.5, "many", None]
    for value in wrong:
        with pytest.raises(pronk.InvalidTypeError, match="max_events"):
            scheduler.start_trace(max_events=value)
    scheduler.start_trace()
    with pytest.raises(pronk.InvalidArgumentError, match="stop_trace"):
        scheduler.start_trace()
    with pytest.raises(pronk.InvalidTypeError, match="path"):
        scheduler.stop_trace(3)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError) as caught:
        scheduler.stop_trace(tmp_path / "nowhere" / "run.json")
    assert caught.value.errno == errno.ENOENT
    # Nothing is lost by it.
    assert scheduler.tracing
    scheduler.try_acquire()
    scheduler.stop_trace(path)
    assert named(open_trace(path), "permits", "C")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_told() -> None:
    scheduler = pronk.InferenceScheduler(1)
    scheduler.start_trace()
    scheduler.try_acquire()
    with pytest.raises(OSError, match="/dev/full") as caught:
        scheduler.stop_trace("/dev/full")
    assert caught.value.errno == errno.ENOSPC
    assert not scheduler.tracing


def test_the_oldest_events_give_way(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    scheduler = pronk.InferenceScheduler(1)
    scheduler.start_trace(max_events=3)
    for _ in range(10):
        scheduler.acquire().release()
    scheduler.stop_trace(path)
    trace = json.loads(path.read_text())
    assert trace["otherData"]["dropped_events"] == "17"
    assert [e["args"]["active"] for e in named(trace["traceEvents"], "permits", "C")] == [0, 1, 0]
