"""What `import pronk` costs: no more modules than it needs."""

from __future__ import annotations

from conftest import Child

# Each takes longer to import than all of pronk. They come with the call that needs them.
LATER = ("anyio", "asyncio", "concurrent.futures", "filelock", "numpy", "platformdirs", "rich")
LATER += ("ssl", "trio", "typer", "urllib.request")


def test_import_brings_nothing_that_can_wait(child: Child) -> None:
    code = """
        import sys
        import pronk
        print(*sorted(set(sys.argv[1:]) & set(sys.modules)))
    """
    assert child(code, *LATER).stdout.strip() == ""


def test_import_starts_nothing(child: Child) -> None:
    """No thread, and no driver: a GPU is looked for when a model is loaded."""
    code = """
        import os, threading
        import pronk
        tasks = "/proc/self/task"
        print(threading.active_count(), len(os.listdir(tasks)) if os.path.isdir(tasks) else 1)
    """
    assert child(code).stdout.split() == ["1", "1"]


def test_blocking_calls_import_no_event_loop(child: Child) -> None:
    """Nor do threads that acquire for the first time, all at once, wait for one another."""
    child(
        """
        import sys, threading
        import pronk

        scheduler = pronk.InferenceScheduler(2)
        start = threading.Barrier(8)

        def work() -> None:
            start.wait()
            for _ in range(50):
                scheduler.acquire().release()

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert "asyncio" not in sys.modules
        """
    )
