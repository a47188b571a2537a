"""Cases F: who waits or works for nothing. See CASES.md."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import wait_until

import pronk
from pronk.testing import ManualClock, ScriptedModel

Drain = Callable[[pronk.InferenceScheduler], None]


@pytest.mark.parametrize("how", ["cancel", "release"])
def test_a_blocked_result_is_cancelled_from_another_thread(how: str, drain: Drain) -> None:
    """F05: the thread in result() gets what there was, and the permit comes back."""
    model = ScriptedModel()
    with pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64) as scheduler:
        model.hold()
        permit = scheduler.acquire()
        generation = permit.generate("abc", max_tokens=30, temperature=0, ignore_eos=True)
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(generation.result)
            model.step(3)
            assert model.wait_held(20)
            wait_until(lambda: model.counters.decodes_finished == 3)
            assert not result.done()
            if how == "cancel":
                generation.cancel()
            else:
                permit.release()
            done = result.result(20)
        model.resume()
        assert done.finish_reason == "cancelled"
        assert done.text == model.expected_text("abc", 30)[: len(done.text)]
        assert len(done.tokens) == 3
        permit.release()
        drain(scheduler)


@pytest.mark.parametrize("layout", ["isolated", "batched"])
def test_a_second_request_does_not_interrupt_the_first(tiny_plain: Path, layout: str) -> None:
    """F07: with default settings two requests, then ten, all complete."""
    engine = pronk.InferenceEngine.load(tiny_plain)
    with pronk.InferenceScheduler(
        2, engine=engine, n_ctx=128, layout=layout, n_threads=1
    ) as scheduler:
        running = []
        for count in (1, 1, 10):
            running += [
                scheduler.generate(f"request {i}", max_tokens=40, ignore_eos=True)
                for i in range(count)
            ]
            next(running[-count])
        for generation in running:
            done = generation.result(60)
            assert (done.finish_reason, len(done.tokens)) == ("length", 40)
        wait_until(lambda: scheduler.statistics().completed == 12)
        assert scheduler.statistics().cancelled == 0


def test_clients_with_a_limit_behind_a_slow_one(drain: Drain) -> None:
    """F09: twenty give up with a typed error and leave no trace; twenty fresh ones are served."""
    clock = ManualClock()
    scheduler = pronk.InferenceScheduler(1, clock=clock)
    slow = scheduler.acquire()
    errors: list[BaseException] = []
    served = []

    def client(timeout: float) -> None:
        try:
            with scheduler.acquire(timeout=timeout):
                served.append(timeout)
        except pronk.AcquireTimeout as error:
            errors.append(error)

    def start(timeout: float) -> list[threading.Thread]:
        threads = [threading.Thread(target=client, args=(timeout,)) for _ in range(20)]
        for thread in threads:
            thread.start()
        return threads

    hasty = start(1.0)
    assert clock.wait_for_waiters(20, 20.0)
    clock.advance(1.5)
    for thread in hasty:
        thread.join(20)
    assert len(errors) == 20
    assert all(isinstance(error, TimeoutError) for error in errors)
    assert scheduler.waiting_count == 0
    fresh = start(60.0)
    assert clock.wait_for_waiters(20, 20.0)
    slow.release()
    for thread in fresh:
        thread.join(20)
    assert len(served) == 20
    assert scheduler.statistics().timed_out == 20
    drain(scheduler)
