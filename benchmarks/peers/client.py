"""What workloads with streams want from pronk and its peers: a completion, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol


class Client(Protocol):
    """Completes prompts of token ids, greedily, past end tokens. Used by many threads at once."""

    def complete(
        self, who: int, prompt: Sequence[int], n: int, on_piece: Callable[[], None]
    ) -> list[int]:
        """Return ``n`` token ids.

        ``on_piece`` is called when a piece of text arrives; what it raises ends the completion.
        ``who`` is the number of the calling agent.
        """
        ...


Open = Callable[[], AbstractContextManager[Client]]
"""Starts from nothing: a model may be loaded already, but no prompt is known."""
