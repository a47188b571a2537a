"""How fast this machine reads memory and multiplies, as far as numpy gets.

Runs in a process of its own, so that its BLAS can be told to use one thread: as many threads as
pronk computes with each work on arrays of their own. Reading is the dot product of an array with
itself, which does next to nothing with what it reads; float32 matrices are multiplied. Prints JSON.

usage: python -m benchmarks.peaks --threads 2 --bytes 100000000
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.settings import PROJECT

_ONE_THREAD = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_LARGE = 1 << 30  # bytes; main memory, not a cache, on most machines
_SECONDS = 0.3
_REPEATS = 5


def measure(n_threads: int, n_bytes: int, *, quick: bool) -> Mapping[str, float]:
    """Return bytes per second and floating-point operations per second.

    ``read`` is over ``n_bytes``, over and over, as the weights of a model are; ``read_large`` over
    1 GiB; ``copy`` counts bytes read and written.
    """
    command = [sys.executable, "-m", "benchmarks.peaks"]
    command += ["--threads", str(n_threads), "--bytes", str(n_bytes)]
    done = subprocess.run(
        [*command, *(["--quick"] if quick else [])],
        cwd=PROJECT,
        env={**os.environ, **dict.fromkeys(_ONE_THREAD, "1")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    rates = json.loads(done.stdout)
    assert isinstance(rates, dict)
    return rates


def _rate(
    n_threads: int, make: Callable[[], Callable[[], Any]], amount: float, quick: bool
) -> float:
    """Return the best rate of several trials: ``amount`` a call, in all threads together."""
    seconds, repeats = (0.02, 1) if quick else (_SECONDS, _REPEATS)
    calls = [make() for _ in range(n_threads)]
    return max(_trial(calls, amount, seconds) for _ in range(repeats))


def _trial(calls: list[Callable[[], Any]], amount: float, seconds: float) -> float:
    start = threading.Barrier(len(calls))
    rates = []

    def work(call: Callable[[], Any]) -> None:
        call()
        start.wait()
        n, begin = 0, time.perf_counter()
        while (passed := time.perf_counter() - begin) < seconds:
            call()
            n += 1
        rates.append(n * amount / passed)

    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rates)


def main() -> None:
    import numpy as np

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    n, quick = options.threads, options.quick
    own = options.bytes // n // 4
    large = own if quick else _LARGE // n // 4
    side = 128 if quick else 2048

    def read(size: int) -> Callable[[], Any]:
        array = np.ones(size, np.float32)
        return lambda: np.dot(array, array)

    def copy() -> Callable[[], Any]:
        source, target = np.ones(large // 2, np.float32), np.zeros(large // 2, np.float32)
        return lambda: np.copyto(target, source)

    def multiply() -> Callable[[], Any]:
        a, b = np.ones((side, side), np.float32), np.ones((side, side), np.float32)
        out = np.empty_like(a)
        return lambda: np.matmul(a, b, out=out)

    rates = {
        "read": _rate(n, lambda: read(own), own * 4, quick),
        "read_large": _rate(n, lambda: read(large), large * 4, quick),
        "copy": _rate(n, copy, large * 4, quick),
        "multiply": _rate(n, multiply, 2 * side**3, quick),
    }
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
