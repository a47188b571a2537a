"""llama-cpp-python behind a lock: what Python programs with several threads do."""

from __future__ import annotations

import importlib
import importlib.util
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from benchmarks.peers.client import Rules
from benchmarks.settings import Settings


def missing() -> str | None:
    """Return why it cannot be measured, None where it can."""
    if importlib.util.find_spec("llama_cpp") is None:
        return "not installed: make bench-peers"
    return None


def about() -> str:
    """Return its version, and the features of the CPU that it was built for."""
    package = importlib.import_module("llama_cpp")
    return f"{package.__version__}: {package.llama_print_system_info().decode()}"


class LockedLlama:
    def __init__(self, package: Any, llama: Any) -> None:
        self._package = package
        self._llama = llama
        self._lock = threading.Lock()

    def complete(
        self,
        who: int,
        prompt: Sequence[int],
        n: int,
        on_piece: Callable[[], None],
        rules: Rules | None = None,
    ) -> list[int]:
        options: dict[str, Any] = {"temp": 0.0}
        if rules is not None:
            options["grammar"] = self._grammar(rules)
        tokens: list[int] = []
        with self._lock:
            # Keeps the longest prefix that it shares with the prompt before.
            for token in islice(self._llama.generate(list(prompt), **options), n):
                on_piece()
                tokens.append(token)
                if rules is not None and self._is_end(token):
                    break
        return tokens

    def _grammar(self, rules: Rules) -> Any:
        if rules.grammar is not None:
            return self._package.LlamaGrammar.from_string(rules.grammar)
        return self._package.LlamaGrammar.from_json_schema(json.dumps(rules.schema))

    def _is_end(self, token: int) -> bool:
        return bool(self._package.llama_vocab_is_eog(self._llama._model.vocab, token))


@contextmanager
def open_llama_cpp_python(settings: Settings, *, n_ctx: int) -> Iterator[LockedLlama]:
    package = importlib.import_module("llama_cpp")
    llama = package.Llama(
        model_path=str(settings.model_path),
        n_ctx=n_ctx,
        n_threads=settings.n_threads,
        n_threads_batch=settings.n_threads,
        verbose=False,
    )
    try:
        yield LockedLlama(package, llama)
    finally:
        llama.close()
