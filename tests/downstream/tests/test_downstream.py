"""An extension that was built against the installed pronk, with another release of nanobind."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pronk_downstream
import pytest

import pronk
import pronk.testing

PROMPTS = [f"prompt {n}" for n in range(24)]
WAIT = 60.0  # a guard against hangs


@pytest.fixture
def model() -> Iterator[pronk.testing.ScriptedModel]:
    model = pronk.testing.ScriptedModel()
    yield model
    assert model.violations == []


@pytest.fixture
def scheduler(model: pronk.testing.ScriptedModel) -> Iterator[pronk.InferenceScheduler]:
    with pronk.InferenceScheduler(2, engine=model.engine, n_ctx=256) as scheduler:
        yield scheduler


def test_it_was_built_with_another_nanobind() -> None:
    assert pronk_downstream.nanobind_version() == (3, 0, 1)


@pytest.mark.parametrize("first", ["pronk", "pronk_downstream"])
def test_imports_in_either_order(first: str) -> None:
    second = {"pronk": "pronk_downstream", "pronk_downstream": "pronk"}[first]
    code = f"""
import {first}, {second}, pronk.testing
model = pronk.testing.ScriptedModel()
with pronk.InferenceScheduler(2, engine=model.engine) as scheduler:
    done, = pronk_downstream.Fleet(scheduler, 1).run(["Hello"], 8)
assert type(done) is pronk.Completion, type(done)
assert done.text == model.expected_text("Hello", 8)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=WAIT)


def test_the_extension_alone_finds_libpronk() -> None:
    subprocess.run([sys.executable, "-c", "import pronk_downstream"], check=True, timeout=WAIT)


@pytest.mark.parametrize("n_threads", [1, 8])
def test_a_fleet_of_cpp_threads(
    model: pronk.testing.ScriptedModel, scheduler: pronk.InferenceScheduler, n_threads: int
) -> None:
    completions = pronk_downstream.Fleet(scheduler, n_threads).run(PROMPTS, 8)
    assert [type(done) for done in completions] == [pronk.Completion] * len(PROMPTS)
    assert [done.text for done in completions] == [model.expected_text(p, 8) for p in PROMPTS]
    assert {done.finish_reason for done in completions} <= {"length", "stop"}
    assert completions[0].usage.prompt_tokens == len(PROMPTS[0])
    statistics = scheduler.statistics()
    assert statistics.acquired == len(PROMPTS)
    assert statistics.high_water <= 2


def test_cpp_threads_and_python_share_the_permits(
    model: pronk.testing.ScriptedModel, scheduler: pronk.InferenceScheduler
) -> None:
    answers: list[pronk.Completion] = []
    fleet = pronk_downstream.Fleet(scheduler, 4)
    permits = [scheduler.acquire(), scheduler.acquire()]
    for permit in permits:
        permit.detach()
    thread = threading.Thread(target=lambda: answers.extend(fleet.run(PROMPTS, 4)))
    thread.start()
    while scheduler.waiting_count < 4:  # the four C++ threads, in the one queue
        assert thread.is_alive()
    assert answers == []
    text = permits[0].generate("Python", temperature=0, max_tokens=4).result(WAIT).text
    assert text == model.expected_text("Python", 4)
    for permit in permits:
        permit.release()
    thread.join(WAIT)
    assert [done.text for done in answers] == [model.expected_text(p, 4) for p in PROMPTS]


def test_python_runs_on_meanwhile(
    model: pronk.testing.ScriptedModel, scheduler: pronk.InferenceScheduler
) -> None:
    model.hold()
    thread = threading.Thread(target=pronk_downstream.Fleet(scheduler, 2).run, args=(PROMPTS, 4))
    thread.start()
    assert model.wait_held(WAIT)  # were the GIL held over there, this line would not be reached
    model.resume()
    thread.join(WAIT)
    assert not thread.is_alive()


def test_a_fleet_keeps_its_scheduler(model: pronk.testing.ScriptedModel) -> None:
    fleet = pronk_downstream.Fleet(pronk.InferenceScheduler(1, engine=model.engine), 1)
    assert fleet.run(["Hello"], 4)[0].text == model.expected_text("Hello", 4)


def test_objects_pass_through(
    model: pronk.testing.ScriptedModel, scheduler: pronk.InferenceScheduler
) -> None:
    permit = pronk_downstream.acquire(scheduler)
    assert type(permit) is pronk.InferencePermit
    with permit:
        generation = pronk_downstream.start(permit, "Hello")
        assert type(generation) is pronk.Generation
        assert "".join(generation) == model.expected_text("Hello", 8)
    assert permit.released
    # The same object, not a second Python face of it.
    assert pronk_downstream.engine_of(scheduler) is scheduler.engine


def test_a_scheduler_made_in_cpp(model: pronk.testing.ScriptedModel) -> None:
    scheduler = pronk_downstream.make_scheduler(3, model.engine)
    assert type(scheduler) is pronk.InferenceScheduler
    assert scheduler.max_concurrent == 3
    with scheduler, scheduler.acquire(timeout=WAIT) as permit:
        text = permit.generate("Hello", temperature=0, max_tokens=8).result(WAIT).text
    assert text == model.expected_text("Hello", 8)


def test_exit_with_a_scheduler_made_in_cpp() -> None:
    code = """
import pronk, pronk.testing, pronk_downstream
model = pronk.testing.ScriptedModel()
scheduler = pronk_downstream.make_scheduler(1, model.engine)
model.hold()
generation = scheduler.generate("Hello", temperature=0)
assert model.wait_held()
"""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        check=False,
        timeout=WAIT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


# Those of the C++ API; the Python layer has some of its own.
INCLUDE = subprocess.check_output([sys.executable, "-m", "pronk", "--include-dir"], text=True)
HEADER = Path(INCLUDE.strip(), "pronk/error.h").read_text(encoding="utf-8")
ERRORS = re.findall(r"^class PRONK_API (\w+) :", HEADER, re.MULTILINE)


def test_the_header_names_errors() -> None:
    assert len(ERRORS) >= 16


@pytest.mark.parametrize("name", ERRORS)
def test_errors_arrive_as_our_python_classes(name: str) -> None:
    with pytest.raises(pronk.Error, match=r"thing: got X") as caught:
        pronk_downstream.raise_error(name, "thing: got X, expected Y, do Z")
    assert type(caught.value) is getattr(pronk, name)


def test_errors_of_cpp_threads_arrive() -> None:
    with (
        pronk.InferenceScheduler(1) as scheduler,
        pytest.raises(pronk.PoolNotInitialisedError),
    ):
        pronk_downstream.Fleet(scheduler, 2).run(PROMPTS, 4)


def test_closing_ends_a_fleet(model: pronk.testing.ScriptedModel) -> None:
    scheduler = pronk.InferenceScheduler(1, engine=model.engine, n_ctx=256)
    caught: list[BaseException] = []

    def run() -> None:
        try:
            pronk_downstream.Fleet(scheduler, 4).run(PROMPTS, 4)
        except pronk.Error as error:
            caught.append(error)

    model.hold()
    thread = threading.Thread(target=run)
    thread.start()
    assert model.wait_held(WAIT)
    scheduler.close()
    thread.join(WAIT)
    assert [type(error) for error in caught] == [pronk.SchedulerClosedError]


def test_cpp_catches_the_classes_that_libpronk_throws() -> None:
    scheduler = pronk.InferenceScheduler(1)
    assert pronk_downstream.caught_in_cpp(scheduler) == "none"
    with scheduler.acquire():
        assert pronk_downstream.caught_in_cpp(scheduler) == "AcquireTimeout"
    scheduler.close()
    assert pronk_downstream.caught_in_cpp(scheduler) == "SchedulerClosedError"


def test_something_else_than_a_scheduler() -> None:
    with pytest.raises(TypeError, match="incompatible function arguments"):
        pronk_downstream.Fleet(object(), 1)
