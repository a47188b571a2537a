"""Ctrl-C ends every blocking call of the main thread, and nothing is lost by it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from conftest import wait_until

import pronk
from pronk.testing import ScriptedModel

Drain = Callable[[pronk.InferenceScheduler], None]

# What the design allows is 0.1 s; a loaded machine gets more.
PATIENCE = 2.0


@contextmanager
def interrupted() -> Iterator[None]:
    """Expect the KeyboardInterrupt that is sent while the body runs."""
    sent: list[float] = []

    def send() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.1, send)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
        assert time.monotonic() - sent[0] < PATIENCE
    finally:
        timer.join()


@pytest.fixture
def held() -> Iterator[tuple[pronk.InferenceScheduler, pronk.InferencePermit]]:
    """A scheduler whose only permit is held by another thread."""
    scheduler = pronk.InferenceScheduler(1)
    permits: list[pronk.InferencePermit] = []
    thread = threading.Thread(target=lambda: permits.append(scheduler.acquire()))
    thread.start()
    thread.join()
    yield scheduler, permits[0]
    permits[0].release()


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_acquire(
    held: tuple[pronk.InferenceScheduler, pronk.InferencePermit],
    timeout: float | None,
    drain: Drain,
) -> None:
    scheduler, permit = held
    with interrupted():
        scheduler.acquire(timeout=timeout)
    assert scheduler.waiting_count == 0
    permit.release()
    drain(scheduler)


def test_no_permit_is_lost_to_a_signal_between_two_instructions(drain: Drain) -> None:
    # A handler may raise after acquire() has returned and before the with block is entered.
    scheduler = pronk.InferenceScheduler(1)
    raised = 0

    def handler(number: int, frame: object) -> None:
        raise LookupError

    previous = signal.signal(signal.SIGALRM, handler)
    try:
        while raised < 200:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005)
                while True:
                    with scheduler.acquire():
                        pass
            except LookupError:
                raised += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert scheduler.active_count == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    drain(scheduler)


def test_draining_close(held: tuple[pronk.InferenceScheduler, pronk.InferencePermit]) -> None:
    scheduler, permit = held
    with interrupted():
        scheduler.close(drain=True)
    permit.release()
    assert scheduler.closed


@pytest.mark.parametrize("by", ["init_pool", "permit", "queue", "second"])
def test_creation_of_the_pool(by: str, drain: Drain) -> None:
    model = ScriptedModel()
    model.fault("block", point="make_backend", call=2)
    lazy = None if by == "init_pool" else model.engine
    options: dict[str, Any] = {} if lazy is None else {"n_ctx": 64, "layout": "isolated"}
    scheduler = pronk.InferenceScheduler(8, engine=lazy, **options)
    if by == "init_pool":
        with interrupted():
            scheduler.init_pool(model.engine, 64, layout="isolated")
        assert scheduler.engine is None
    elif by == "permit":
        with scheduler.acquire() as permit, interrupted():
            permit.generate("abc")
    elif by == "queue":
        with interrupted():
            scheduler.generate("abc")
    else:  # a thread creates it, and Ctrl-C does not take it away from that one
        results: list[pronk.Generation] = []
        thread = threading.Thread(target=lambda: results.append(scheduler.generate("abc")))
        thread.start()
        assert model.wait_blocked()
        with interrupted():
            scheduler.generate("abc")
        model.release_blocked()
        thread.join(20)
        assert results[0].result(20).finish_reason in {"stop", "length"}
    model.release_blocked()
    if by == "init_pool":
        scheduler.init_pool(model.engine, 64, layout="isolated")
    assert scheduler.generate("abc", max_tokens=4).result(20).finish_reason in {"stop", "length"}
    assert model.counters.contexts_alive == 8
    drain(scheduler)
    scheduler.close()


def test_the_end_of_a_with_block() -> None:
    model = ScriptedModel()
    model.fault("block", ignore_abort=True)
    scheduler = pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64)
    with interrupted(), scheduler:
        generation = scheduler.generate("abc")
        assert model.wait_blocked()
    assert scheduler.closed
    model.release_blocked()
    with pytest.raises(pronk.SchedulerClosedError):
        scheduler.acquire()
    assert generation.result(20).finish_reason == "cancelled"


def test_closing_while_the_pool_is_created() -> None:
    model = ScriptedModel()
    model.fault("block", point="make_backend", call=2)
    scheduler = pronk.InferenceScheduler(8, engine=model.engine, n_ctx=64, layout="isolated")
    errors: list[BaseException] = []

    def generate() -> None:
        with pytest.raises(pronk.SchedulerClosedError) as caught:
            scheduler.generate("abc")
        errors.append(caught.value)

    thread = threading.Thread(target=generate)
    thread.start()
    assert model.wait_blocked()
    with interrupted():
        scheduler.close()
    model.release_blocked()
    thread.join(20)
    assert len(errors) == 1
    assert scheduler.close()


@pytest.mark.parametrize(
    "wait", [lambda g: g.result(), lambda g: g.result(60.0), next, lambda g: list(g)]
)
def test_generation(wait: Callable[[pronk.Generation], object], drain: Drain) -> None:
    model = ScriptedModel()
    model.hold()
    scheduler = pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64)
    with scheduler.acquire() as permit:
        generation = permit.generate("abc", max_tokens=8)
        with interrupted():
            wait(generation)
        model.resume()
        assert generation.result(20).finish_reason in {"stop", "length"}
    drain(scheduler)
    scheduler.close()


def test_a_handler_that_does_not_raise_does_not_end_the_wait(
    held: tuple[pronk.InferenceScheduler, pronk.InferencePermit],
) -> None:
    scheduler, permit = held
    calls: list[int] = []

    def release_after_the_call() -> None:
        wait_until(lambda: bool(calls))
        permit.release()

    previous = signal.signal(signal.SIGUSR1, lambda number, frame: calls.append(number))
    try:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        threading.Thread(target=release_after_the_call).start()
        with scheduler.acquire(timeout=20):
            assert calls == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, previous)


def test_what_a_handler_raises_arrives(
    held: tuple[pronk.InferenceScheduler, pronk.InferencePermit],
) -> None:
    scheduler, _ = held

    def handler(number: int, frame: object) -> None:
        raise LookupError("from the handler")

    previous = signal.signal(signal.SIGUSR1, handler)
    try:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(LookupError, match="from the handler"):
            scheduler.acquire(timeout=20)
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert scheduler.waiting_count == 0
