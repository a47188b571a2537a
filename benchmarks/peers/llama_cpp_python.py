"""llama-cpp-python behind a lock: what Python programs with several threads do."""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from benchmarks.settings import Settings


def missing() -> str | None:
    """Return why it cannot be measured, None where it can."""
    if importlib.util.find_spec("llama_cpp") is None:
        return "not installed: pip install llama-cpp-python"
    return None


class LockedLlama:
    def __init__(self, llama: Any) -> None:
        self._llama = llama
        self._lock = threading.Lock()

    def complete(
        self, who: int, prompt: Sequence[int], n: int, on_piece: Callable[[], None]
    ) -> list[int]:
        tokens = []
        with self._lock:
            # Keeps the longest prefix that it shares with the prompt before.
            for token in islice(self._llama.generate(list(prompt), top_k=1, temp=0.0), n):
                on_piece()
                tokens.append(token)
        return tokens


@contextmanager
def open_llama_cpp_python(settings: Settings, *, n_ctx: int) -> Iterator[LockedLlama]:
    llama = importlib.import_module("llama_cpp").Llama(
        model_path=str(settings.model_path),
        n_ctx=n_ctx,
        n_threads=settings.n_threads,
        n_threads_batch=settings.n_threads,
        verbose=False,
    )
    try:
        yield LockedLlama(llama)
    finally:
        llama.close()
