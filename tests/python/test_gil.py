"""The GIL: other Python threads run while one is blocked in pronk, and what comes back holds it."""

from __future__ import annotations

import pytest
from conftest import Child

# Nobody is made to let go of the GIL: what runs beside a blocked call was let in by it. The count
# is in a child process because a call that kept the GIL would stop this one for good.
COUNT = """
    import sys, threading
    sys.setswitchinterval(1000)
    import pronk
    from pronk.testing import ScriptedModel

    model = ScriptedModel()
    scheduler = pronk.InferenceScheduler(1, engine=model.engine, n_ctx=64)
    model.hold()
    permit = scheduler.acquire()
    generation = permit.generate("abc", max_tokens=8, temperature=0)
    assert model.wait_held(20)
    entered = threading.Event()

    def block():
        entered.set()
        {blocking}

    thread = threading.Thread(target=block)
    thread.start()
    assert entered.wait(20)
    if {waits_for_permit}:
        while scheduler.waiting_count == 0:
            pass
    count = 0
    while count < 1_000_000:
        count += 1
    assert thread.is_alive()
    assert not generation.done
    model.resume()
    assert generation.result(20).text == model.expected_text("abc", 8)
    permit.release()
    thread.join(20)
    assert not thread.is_alive()
    print(count)
"""


@pytest.mark.parametrize(
    "blocking",
    [
        "scheduler.acquire().release()",
        "scheduler.acquire(timeout=60).release()",
        "scheduler.generate('queued', max_tokens=2).result()",
        "generation.result()",
        "generation.result(60)",
        "next(generation)",
        "list(generation)",
        "scheduler.close(drain=True)",
    ],
)
def test_a_thread_counts_while_another_is_blocked(child: Child, blocking: str) -> None:
    queued = "acquire" in blocking or "queued" in blocking
    code = COUNT.format(blocking=blocking, waits_for_permit=queued)
    assert child(code).stdout == "1000000\n"


def test_a_thread_counts_during_a_generation(child: Child, tiny_plain: object) -> None:
    code = """
        import sys, threading
        import pronk

        engine = pronk.InferenceEngine.load(sys.argv[1])
        with pronk.InferenceScheduler(1, engine=engine, n_ctx=4096, n_threads=1) as scheduler:
            with scheduler.acquire() as permit:
                generation = permit.generate("a", max_tokens=3000, ignore_eos=True)
                count = 0
                thread = threading.Thread(target=generation.result)
                thread.start()
                while not generation.done:
                    count += 1
                assert len(generation.result(20).tokens) == 3000
                thread.join()
        assert count > 1000, count
    """
    child(code, tiny_plain)


def test_threads_that_python_never_saw(child: Child) -> None:
    """C21: what two native threads do in Python and in pronk they do with the GIL, one at a time.

    Prereleases of nanobind 3 let the second native thread believe that it held the GIL. The first
    thread here computes for 200 ms without letting the GIL go; the second comes out of a wait in
    pronk meanwhile, and must not get to run before the first has ended.
    """
    code = """
        import ctypes, sys, threading, time
        sys.setswitchinterval(1000)
        import pronk

        libc = ctypes.CDLL(None)
        function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
        scheduler = pronk.InferenceScheduler(1)
        permit = scheduler.acquire()
        computing = False
        seen, errors = [], []

        def holds_gil():
            return ctypes.pythonapi.PyGILState_Check()

        def compute():
            global computing
            computing = True
            permit.release()  # the other thread may go on, once it gets the GIL
            end = time.perf_counter() + 0.2
            while time.perf_counter() < end:
                pass
            seen.append(("computed", holds_gil()))
            computing = False

        def wait():
            with scheduler.acquire(timeout=20):
                seen.append(("waited", holds_gil(), computing))

        def guarded(body):
            def run(_):
                try:
                    body()
                except BaseException as error:
                    errors.append(error)
                return None
            return function(run)

        def start(callback):
            thread = ctypes.c_void_p()
            assert libc.pthread_create(ctypes.byref(thread), None, callback, None) == 0
            return thread

        callbacks = [guarded(wait), guarded(compute)]
        threads = [start(callbacks[0])]
        while scheduler.waiting_count == 0:
            time.sleep(0.001)  # lets the thread in
        threads.append(start(callbacks[1]))
        for thread in threads:
            assert libc.pthread_join(thread, None) == 0
        assert errors == [], errors
        assert seen == [("computed", 1), ("waited", 1, False)], seen
        assert scheduler.active_count == 0
    """
    child(code)
