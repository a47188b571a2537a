"""Permits: every way to give one back, and that none is ever lost."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import pytest

import pronk

Drain = Callable[[pronk.InferenceScheduler], None]


def held(permit: pronk.InferencePermit) -> bool:
    """A type checker thinks that a property stays what it was."""
    return not permit.released


def test_with_statement_releases(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)
    with scheduler.acquire() as permit:
        assert held(permit)
        assert "held" in repr(permit)
    assert not held(permit)
    assert "released" in repr(permit)
    drain(scheduler)


def test_exception_releases(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)
    with pytest.raises(ZeroDivisionError), scheduler.acquire():
        _ = 1 / 0
    drain(scheduler)


def test_dropping_releases(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)
    for _ in range(100):
        scheduler.acquire()
    drain(scheduler)


def test_garbage_collection_releases(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)
    cycle: list[object] = [scheduler.acquire()]
    cycle.append(cycle)
    del cycle
    gc.collect()
    drain(scheduler)


def test_release_twice_gives_back_one(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(2)
    first, second = scheduler.acquire(), scheduler.acquire()
    first.release()
    first.release()
    assert scheduler.active_count == 1
    second.release()
    drain(scheduler)


def test_release_from_another_thread(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)
    permit = scheduler.acquire()
    thread = threading.Thread(target=permit.release)
    thread.start()
    thread.join()
    assert permit.released
    drain(scheduler)


def test_release_from_many_threads_at_once(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)
    for _ in range(50):
        permit = scheduler.acquire()
        barrier = threading.Barrier(4)

        def release(
            permit: pronk.InferencePermit = permit, barrier: threading.Barrier = barrier
        ) -> None:
            barrier.wait()
            permit.release()

        threads = [threading.Thread(target=release) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert scheduler.active_count == 0
    drain(scheduler)


def test_use_after_release() -> None:
    scheduler = pronk.InferenceScheduler(1)
    permit = scheduler.acquire()
    permit.release()
    with pytest.raises(pronk.PermitReleasedError):
        permit.generate("too late")
    with pytest.raises(pronk.PermitReleasedError), permit:
        pass


def test_generate_without_an_engine() -> None:
    scheduler = pronk.InferenceScheduler(1)
    with scheduler.acquire() as permit:
        with pytest.raises(pronk.PoolNotInitialisedError, match="init_pool"):
            permit.generate("no model")
        assert not permit.released
    with pytest.raises(pronk.PoolNotInitialisedError):
        scheduler.generate("no model")


def test_cannot_be_made_by_hand() -> None:
    with pytest.raises(TypeError):
        pronk.InferencePermit()
    with pytest.raises(TypeError):
        pronk.Generation()


def test_objects_reused_for_other_permits_start_anew(drain: Drain) -> None:
    # The memory of dead permits is pooled.
    scheduler = pronk.InferenceScheduler(1)
    for _ in range(300):
        permit = scheduler.acquire()
        assert held(permit)
        permit.release()
        assert not held(permit)
        del permit
    drain(scheduler)
