"""Which messages of a long conversation go: the oldest, and never a call without its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pronk._agent_events import Message

SUMMARY_REQUEST = "Summarise our conversation so far."


def split_system(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """Return the system prompt, and the rest."""
    n = 0
    while n < len(messages) and messages[n]["role"] in ("system", "developer"):
        n += 1
    return messages[:n], messages[n:]


def choose(
    messages: list[Message], target: int, count: Callable[[Message], int], *, answered: bool
) -> tuple[list[Message], list[Message]]:
    """Choose what to keep of ``messages``, which begin after the system prompt.

    Whole exchanges go first, so that what is left begins with a user's message, as templates want
    it. If the last exchange alone is too long, its oldest calls go, with their results, and its
    question stays.

    Args:
        messages: The conversation, whole.
        target: Tokens to keep at most, if that can be reached.
        count: Tokens of a message.
        answered: Whether a new user's message follows, so that the last exchange may go too.

    Returns:
        What is kept, and what is dropped, both in order.
    """
    costs = [count(message) for message in messages]
    total = sum(costs)
    starts = [
        n
        for n, message in enumerate(messages)
        if message["role"] == "user" and (n == 0 or messages[n - 1]["role"] != "user")
    ]
    cuts = [n for n in starts if n > 0] + ([len(messages)] if answered and messages else [])
    begin = 0
    for cut in cuts:
        if total <= target:
            break
        total -= sum(costs[begin:cut])
        begin = cut
    kept, dropped = messages[begin:], messages[:begin]
    if total <= target or not kept:
        return kept, dropped

    head, blocks = _blocks(kept)
    offset = begin + len(head)
    gone: list[Message] = []
    for block in blocks[:-1]:
        if total <= target:
            break
        total -= sum(costs[offset : offset + len(block)])
        offset += len(block)
        gone += block
    return head + kept[len(head) + len(gone) :], dropped + gone


def summarised(summary: str) -> list[Message]:
    """Return messages that stand for what was dropped, in the alternation that templates want."""
    return [
        {"role": "user", "content": SUMMARY_REQUEST},
        {"role": "assistant", "content": summary},
    ]


def is_summary(messages: list[Message]) -> bool:
    """Return whether these are what :func:`summarised` returned, and nothing else."""
    return len(messages) == 2 and messages[0].get("content") == SUMMARY_REQUEST


def _blocks(exchange: list[Message]) -> tuple[list[Message], list[list[Message]]]:
    """Split an exchange into its question and what may go as a whole: calls with their results."""
    n = 0
    while n < len(exchange) and exchange[n]["role"] == "user":
        n += 1
    blocks: list[list[Message]] = []
    for message in exchange[n:]:
        if message["role"] == "tool" and blocks:
            blocks[-1].append(message)
        else:
            blocks.append([message])
    return exchange[:n], blocks
