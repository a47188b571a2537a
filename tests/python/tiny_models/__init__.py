"""Tiny random GGUF models for the tests, one per memory type that llama.cpp knows.

    from tiny_models import tiny_model

    path = tiny_model("plain", tmp_path)

Each file is a few hundred kilobytes, takes some ten milliseconds to write, and has the same bytes
for the same seed on every machine. All share one byte-level tokenizer (`tiny_models.vocabulary`)
and one chat template (`tiny_models.chat_template`). Their text means nothing, but greedy output is
varied, depends on the whole prompt, and is valid UTF-8 whose characters are often split over
two tokens.
"""

from __future__ import annotations

from tiny_models.kinds import GENERATING_KINDS, KINDS, MEMORY_KINDS, SLIDING_WINDOW, Kind
from tiny_models.writer import tiny_model

__all__ = [
    "GENERATING_KINDS",
    "KINDS",
    "MEMORY_KINDS",
    "SLIDING_WINDOW",
    "Kind",
    "tiny_model",
]
