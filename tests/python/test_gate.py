"""The gate as a plain semaphore: order, time limits, priorities, deadlocks, the end."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from weakref import ref

import pytest
from conftest import wait_until

import pronk
from pronk.testing import ManualClock

Drain = Callable[[pronk.InferenceScheduler], None]


class Waiter(threading.Thread):
    """A thread that waits for a permit, notes its turn and gives it back."""

    def __init__(
        self, scheduler: pronk.InferenceScheduler, name: str, order: list[str], **options: float
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.scheduler, self.order, self.options = scheduler, order, options
        self.error: BaseException | None = None
        before = scheduler.waiting_count
        self.start()
        wait_until(lambda: scheduler.waiting_count > before or not self.is_alive())

    def run(self) -> None:
        try:
            with self.scheduler.acquire(**self.options):  # type: ignore[arg-type]
                self.order.append(self.name)
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self.join(20)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


def test_at_most_max_concurrent_permits_are_out(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(3)
    inside, most, lock = 0, 0, threading.Lock()

    def work(_: int) -> None:
        nonlocal inside, most
        for _ in range(20):
            with scheduler.acquire():
                with lock:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0)
                with lock:
                    inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert most <= 3
    assert scheduler.statistics().high_water == most
    assert scheduler.statistics().acquired == 160
    drain(scheduler)


def test_waiters_are_served_in_order(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)
    order: list[str] = []
    with scheduler.acquire():
        waiters = [Waiter(scheduler, str(i), order) for i in range(6)]
        assert scheduler.waiting_count == 6
    for waiter in waiters:
        waiter.end()
    assert order == list("012345")
    drain(scheduler)


def test_higher_priority_goes_first_and_equals_stay_in_order(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1, clock=ManualClock())
    order: list[str] = []
    with scheduler.acquire():
        plan = [("a", 0), ("b", 5), ("c", -5), ("d", 5), ("e", 0)]
        waiters = [Waiter(scheduler, name, order, priority=p) for name, p in plan]
    for waiter in waiters:
        waiter.end()
    assert order == list("bdaec")
    drain(scheduler)


def test_waiting_raises_priority() -> None:
    clock = ManualClock()
    scheduler = pronk.InferenceScheduler(1, clock=clock)
    order: list[str] = []
    with scheduler.acquire():
        waiters = [Waiter(scheduler, "old", order, priority=0)]
        clock.advance(25.0)  # a level per ten seconds
        waiters.append(Waiter(scheduler, "urgent", order, priority=2))
        waiters.append(Waiter(scheduler, "more urgent", order, priority=3))
    for waiter in waiters:
        waiter.end()
    assert order == ["more urgent", "old", "urgent"]


def test_nobody_barges_in(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)
    order: list[str] = []
    permit = scheduler.acquire()
    waiter = Waiter(scheduler, "first", order)
    permit.release()
    # The permit belongs to the waiter by now, whether or not its thread has run.
    barged = scheduler.try_acquire()
    assert barged is None or order == ["first"]
    del barged
    waiter.end()
    drain(scheduler)


def test_try_acquire_never_waits() -> None:
    scheduler = pronk.InferenceScheduler(1)
    permit = scheduler.try_acquire()
    assert permit is not None
    assert scheduler.try_acquire() is None
    permit.release()
    assert scheduler.try_acquire() is not None


def test_timeout(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)
    with scheduler.acquire(), ThreadPoolExecutor(1) as pool:
        for timeout in (0, 0.0, 0.01):
            with pytest.raises(pronk.AcquireTimeout, match="1 of 1 in use") as caught:
                pool.submit(scheduler.acquire, timeout=timeout).result(20)
            assert isinstance(caught.value, TimeoutError)
        assert scheduler.statistics().timed_out == 3
        assert scheduler.waiting_count == 0
    drain(scheduler)


def test_timeout_of_zero_takes_a_free_permit() -> None:
    scheduler = pronk.InferenceScheduler(1)
    assert not scheduler.acquire(timeout=0).released


def test_a_huge_timeout_is_never(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)
    order: list[str] = []
    with scheduler.acquire():
        waiters = [
            Waiter(scheduler, str(timeout), order, timeout=timeout)
            for timeout in (1e9, 1e18, 1e300, 10**400)
        ]
    for waiter in waiters:
        waiter.end()
    assert len(order) == 4
    drain(scheduler)


def test_timeout_runs_on_the_clock_of_the_scheduler() -> None:
    clock = ManualClock()
    scheduler = pronk.InferenceScheduler(1, clock=clock)
    with scheduler.acquire():
        waiter = Waiter(scheduler, "late", [], timeout=60.0)
        assert clock.wait_for_waiters(1, 20.0)
        clock.advance(59.0)
        assert scheduler.waiting_count == 1
        assert clock.wait_for_waiters(1, 20.0)
        clock.advance(2.0)
        with pytest.raises(pronk.AcquireTimeout):
            waiter.end()


def test_timed_out_waiter_leaves_the_queue_to_the_others(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)
    order: list[str] = []
    with scheduler.acquire():
        hasty = Waiter(scheduler, "hasty", order, timeout=0.05)
        patient = Waiter(scheduler, "patient", order)
        with pytest.raises(pronk.AcquireTimeout):
            hasty.end()
    patient.end()
    assert order == ["patient"]
    drain(scheduler)


def test_nested_acquire_raises_instead_of_hanging(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(2)
    with scheduler.acquire(), scheduler.acquire():
        with pytest.raises(pronk.DeadlockError, match="2 permits"):
            scheduler.acquire()
        with pytest.raises(pronk.DeadlockError):
            scheduler.acquire(timeout=0.01)
        assert scheduler.try_acquire() is None
    drain(scheduler)


def test_a_permit_handed_over_is_no_deadlock(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)
    permit = scheduler.acquire()
    permit.detach()
    permit.detach()

    def release_when_waited_for() -> None:
        wait_until(lambda: scheduler.waiting_count == 1)
        permit.release()

    with ThreadPoolExecutor(1) as pool:
        released = pool.submit(release_when_waited_for)
        # What this thread acquires now counts again.
        with scheduler.acquire(timeout=30), pytest.raises(pronk.DeadlockError, match="detach"):
            scheduler.acquire()
        released.result()
    permit.detach()
    drain(scheduler)


def test_no_deadlock_while_another_thread_holds_one() -> None:
    scheduler = pronk.InferenceScheduler(2)
    with ThreadPoolExecutor(1) as pool, scheduler.acquire():
        other = pool.submit(scheduler.acquire).result(20)
        threading.Timer(0.05, other.release).start()
        with scheduler.acquire():
            pass


def test_thread_ids_are_not_confused(drain: Drain) -> None:
    # The system gives the ids of dead threads to new ones.
    scheduler = pronk.InferenceScheduler(1)
    permits: list[pronk.InferencePermit] = []
    thread = threading.Thread(target=lambda: permits.append(scheduler.acquire()))
    thread.start()
    thread.join()
    waiter = Waiter(scheduler, "next", [])
    permits.pop().release()
    waiter.end()
    drain(scheduler)


def test_full_queue(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1, max_waiting=2)
    with scheduler.acquire(), ThreadPoolExecutor(1) as pool:
        waiters = [Waiter(scheduler, name, []) for name in "ab"]
        with pytest.raises(pronk.QueueFullError, match="max_waiting=2"):
            pool.submit(scheduler.acquire).result(20)
    for waiter in waiters:
        waiter.end()
    drain(scheduler)


def test_resize(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(1)
    order: list[str] = []
    permit = scheduler.acquire()
    waiter = Waiter(scheduler, "second", order)
    scheduler.resize(2)
    waiter.end()
    assert scheduler.max_concurrent == 2
    second = scheduler.acquire()
    scheduler.resize(1)  # one too many is out
    waiter = Waiter(scheduler, "third", order)
    permit.release()
    assert scheduler.waiting_count == 1
    second.release()
    waiter.end()
    scheduler.resize(2)
    drain(scheduler)


def test_close_ends_every_wait() -> None:
    scheduler = pronk.InferenceScheduler(1)
    permit = scheduler.acquire()
    waiters = [Waiter(scheduler, str(i), []) for i in range(4)]
    assert scheduler.close()
    for waiter in waiters:
        with pytest.raises(pronk.SchedulerClosedError):
            waiter.end()
    for call in (scheduler.acquire, scheduler.try_acquire):
        with pytest.raises(pronk.SchedulerClosedError):
            call()
    assert scheduler.closed
    permit.release()
    assert scheduler.active_count == 0


def test_close_twice_and_from_several_threads() -> None:
    scheduler = pronk.InferenceScheduler(2)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: scheduler.close(), range(8)))
    assert scheduler.close()


def test_draining_close_serves_those_who_wait() -> None:
    scheduler = pronk.InferenceScheduler(1)
    order: list[str] = []
    permit = scheduler.acquire()
    waiters = [Waiter(scheduler, name, order) for name in "ab"]
    threading.Timer(0.05, permit.release).start()
    assert scheduler.close(drain=True)
    for waiter in waiters:
        waiter.end()
    assert order == ["a", "b"]


def test_draining_close_gives_up_at_its_timeout() -> None:
    scheduler = pronk.InferenceScheduler(1)
    permit = scheduler.acquire()
    assert not scheduler.close(drain=True, timeout=0.05)
    permit.release()


def test_with_statement_closes() -> None:
    with pronk.InferenceScheduler(1) as scheduler:
        assert not scheduler.closed
    assert scheduler.closed


def test_statistics_add_up(drain: Drain) -> None:
    scheduler = pronk.InferenceScheduler(2)
    permits = [scheduler.acquire(), scheduler.acquire()]
    statistics = scheduler.statistics()
    assert (statistics.max_concurrent, statistics.active, statistics.high_water) == (2, 2, 2)
    assert statistics.asdict()["active"] == 2
    assert "active=2" in repr(statistics)
    with pytest.raises(AttributeError):
        statistics.active = 3  # type: ignore[misc]
    permits.clear()
    drain(scheduler)


def test_repr_shows_the_load() -> None:
    scheduler = pronk.InferenceScheduler(3)
    with scheduler.acquire():
        assert repr(scheduler) == ("<pronk.InferenceScheduler max_concurrent=3 active=1 waiting=0>")
    scheduler.close()
    assert repr(scheduler).endswith("closed>")


def test_permits_outlive_their_scheduler() -> None:
    scheduler = pronk.InferenceScheduler(1)
    gone = ref(scheduler)
    permit = scheduler.acquire()
    del scheduler
    gc.collect()
    assert gone() is None
    assert not permit.released
    permit.release()


def test_subclass() -> None:
    class Counting(pronk.InferenceScheduler):
        def __init__(self) -> None:
            super().__init__(2)
            self.calls = 0

        def acquire(self, **options: float) -> pronk.InferencePermit:  # type: ignore[override]
            self.calls += 1
            return super().acquire(**options)  # type: ignore[arg-type]

    scheduler = Counting()
    with scheduler.acquire(timeout=1):
        assert scheduler.active_count == 1
    assert scheduler.calls == 1


def test_others_run_while_one_waits() -> None:
    scheduler = pronk.InferenceScheduler(1)
    with scheduler.acquire():
        waiter = Waiter(scheduler, "blocked", [])
        count = 0
        deadline = time.monotonic() + 0.1
        while time.monotonic() < deadline:
            count += 1
    waiter.end()
    # Without the GIL let go of, this thread would not have got here at all.
    assert count > 1000
