"""The tools that the agents of `agent_tools` call: five searches in the records of a shop."""

from __future__ import annotations

import json
import random

from benchmarks.json_shapes import Choice, Items, Number, Record, Words

TOOLS = {
    "search_orders": "finds orders that customers placed, with what they paid and the place they "
    "are sent to. Use it for questions about purchases, baskets and revenue.",
    "search_customers": "finds customers, with the day on which they registered and what they "
    "spent since. Use it for questions about people and companies, never for single purchases.",
    "search_shipments": "finds parcels on their way, with the carrier and the depot where they "
    "were last seen. Use it when something is late, lost or damaged.",
    "search_invoices": "finds invoices and reminders, with what is still to be paid. Use it for "
    "questions about money that the shop is owed.",
    "search_tickets": "finds what customers wrote to the help desk, with the state of the answer. "
    "Use it for complaints, returns and questions about products.",
}
FIELDS = {
    "status": "open, paid, sent, delivered, returned or closed",
    "region": "north, south, east, west or abroad",
    "product": "the name of a product, or the beginning of it",
    "owner": "the name of the customer or of the colleague who is in charge",
    "date": "the day of the last change, as year, month and day",
    "total": "an amount in whole euros",
}
OPERATORS = ("equals", "contains", "above", "below")

_FILTER = Record({"field": Choice(tuple(FIELDS)), "operator": Choice(OPERATORS), "value": Words(8)})
CALL = Record(
    {
        "tool": Choice(tuple(TOOLS)),
        "arguments": Record(
            {
                "filters": Items(_FILTER, 2),
                "sort_by": Choice(tuple(FIELDS)),
                "order": Choice(("ascending", "descending")),
                "limit": Number(2),
                "reason": Words(24),
            }
        ),
    }
)

SHORT_CALL = Record({"tool": Choice(tuple(TOOLS)), "limit": Number(2)})
"""For runs that measure nothing."""

_EXAMPLE = {
    "tool": "search_orders",
    "arguments": {
        "filters": [
            {"field": "region", "operator": "equals", "value": "the west"},
            {"field": "product", "operator": "contains", "value": "umbrella"},
        ],
        "sort_by": "date",
        "order": "descending",
        "limit": 20,
        "reason": "count sales of umbrellas",
    },
}


def system_prompt() -> str:
    """What all agents have in common, some 600 tokens."""
    lines = [
        "You are a clerk of a mail-order shop and answer questions about its records. You cannot "
        "see the records yourself: in each turn you call exactly one tool, read what it returns, "
        "and decide which call brings you closer to the answer. Never guess a value that a tool "
        "can tell you, never repeat a call that has returned nothing, and narrow a search down "
        "before you widen it.",
        "",
        "A call is one JSON object on one line, with the name of the tool and its arguments, and "
        "without any other text before or after it. The tools:",
        *(f"- {name} {text}" for name, text in TOOLS.items()),
        "",
        "All tools take the same arguments. `filters` is a list of two conditions, both of which "
        "a record has to meet; each has a field, an operator and a value. `sort_by` names the "
        "field by which the records are put in order, `order` is ascending or descending, `limit` "
        "is the largest number of records to return, from 10 to 99, and `reason` says in a few "
        "words what the call is for, which goes into the log of the shop. The fields:",
        *(f"- {name}: {text}" for name, text in FIELDS.items()),
        "",
        "The operators `equals` and `contains` compare texts without regard to capitals, `above` "
        "and `below` compare dates and amounts. A record that lacks a field meets no condition "
        "on it. A tool returns a list of records; it is empty when nothing was found. For example:",
        json.dumps(_EXAMPLE),
    ]
    return "\n".join(lines)


def question(who: int) -> str:
    """What an agent is asked."""
    rng = random.Random(repr(("question", who)))
    tool, region = rng.choice(list(TOOLS)), rng.choice(("north", "south", "east", "west"))
    subject = tool.removeprefix("search_")
    return (
        f"Case {rng.randrange(1000, 10_000)}: which {subject} of the {region} need our attention?"
    )


def records(who: int, turn: int) -> str:
    """What a tool returns, whatever it was asked: three records, as JSON."""
    rng = random.Random(repr(("records", who, turn)))
    rows = [
        {
            "id": f"{rng.choice('CDFKMR')}{rng.randrange(1000, 10_000)}",
            "status": rng.choice(("open", "paid", "sent", "closed")),
            "region": rng.choice(("north", "south", "east", "west")),
            "owner": rng.choice(("Anna", "Ben", "Clara", "David", "Emma", "Frank")),
            "date": f"2026-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}",
            "total": rng.randrange(100, 1000),
        }
        for _ in range(3)
    ]
    return json.dumps(rows)
