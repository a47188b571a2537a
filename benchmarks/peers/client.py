"""What workloads with streams want from pronk and its peers: a completion, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Rules:
    """What a text has to follow: one of the two."""

    grammar: str | None = None
    """GBNF."""
    schema: Mapping[str, Any] | None = None
    """A JSON schema, of which the side makes a grammar itself."""


class Client(Protocol):
    """Completes prompts of token ids, greedily. Used by many threads at once."""

    def complete(
        self,
        who: int,
        prompt: Sequence[int],
        n: int,
        on_piece: Callable[[], None],
        rules: Rules | None = None,
    ) -> list[int]:
        """Return ``n`` token ids, past end tokens.

        With ``rules`` at most so many: the text ends where they say. The end token may be among
        them.

        ``on_piece`` is called when a piece of text arrives; what it raises ends the completion.
        ``who`` is the number of the calling agent.
        """
        ...


Open = Callable[[], AbstractContextManager[Client]]
"""Starts from nothing: a model may be loaded already, but no prompt is known."""
