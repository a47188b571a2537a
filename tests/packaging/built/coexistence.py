"""Generates with pronk and with llama_cpp in one process, and prints the tokens of each.

usage: coexistence.py MODEL NAME... where NAME is pronk or llama_cpp, in the order of their imports
"""

from __future__ import annotations

import importlib
import json
import sys
import threading
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

PROMPT = [int(token) for token in b"It was the best of times, it was the worst of times"]
N_TOKENS = 16


def start_pronk(pronk: Any, model: str) -> Callable[[], list[int]]:
    engine = pronk.InferenceEngine.load(model, n_gpu_layers=0)
    scheduler = pronk.InferenceScheduler(2, engine=engine, n_ctx=256)

    def generate() -> list[int]:
        done = scheduler.generate(PROMPT, temperature=0, max_tokens=N_TOKENS).result()
        return list(done.tokens)

    return generate


def start_llama_cpp(llama_cpp: Any, model: str) -> Callable[[], list[int]]:
    llama = llama_cpp.Llama(model_path=model, n_ctx=256, n_threads=2, verbose=False)

    def generate() -> list[int]:
        return list(islice(llama.generate(PROMPT, top_k=1, temp=0.0), N_TOKENS))

    return generate


START = {"pronk": start_pronk, "llama_cpp": start_llama_cpp}


def main(model: str, names: Sequence[str]) -> None:
    modules = {name: importlib.import_module(name) for name in names}
    generators = {name: START[name](modules[name], model) for name in names}
    tokens: dict[str, list[list[int]]] = {name: [] for name in names}

    def repeat(name: str) -> None:
        for _ in range(2):
            tokens[name].append(generators[name]())

    # By turns, then at the same time.
    for name in names:
        repeat(name)
    threads = [threading.Thread(target=repeat, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    json.dump(tokens, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
