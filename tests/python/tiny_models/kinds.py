"""The names of the tiny models."""

from __future__ import annotations

from typing import Literal, get_args

Kind = Literal[
    "plain",  # full attention (llama)
    "swa",  # sliding window and full attention in turn (gemma3)
    "recurrent",  # no attention: one state per sequence, never rolled back (mamba)
    "hybrid",  # recurrent and attention layers (jamba)
    "rollback",  # a hybrid whose state can step back if n_rs_seq > 0 (lfm2)
    "stops",  # plain, and ends its text by itself after some dozen tokens
    "raw_bytes",  # plain, and writes any byte: its text is seldom valid UTF-8
    "encoder",  # no memory and no logits, embeddings only (bert)
    "vocabulary",  # a tokenizer without weights
]

KINDS: tuple[Kind, ...] = get_args(Kind)

# One per way in which llama.cpp remembers a sequence.
MEMORY_KINDS: tuple[Kind, ...] = ("plain", "swa", "recurrent", "hybrid", "rollback")

# Those that can write text.
GENERATING_KINDS: tuple[Kind, ...] = (*MEMORY_KINDS, "stops", "raw_bytes")

# Tokens that a sliding-window layer of kind "swa" sees.
SLIDING_WINDOW = 16
