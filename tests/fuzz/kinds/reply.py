"""What a model says, read as a message: any text, in the formats of all templates."""

from __future__ import annotations

import json
import random
from pathlib import Path

from fuzz import corpus, mutate
from fuzz.world import BrokenError, World, finish

WORDS = [
    *(
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
        "[TOOL_CALLS]",
        "[/TOOL_CALLS]",
        "[ARGS]",
    ),
    *("<|tool_call|>", "<function=get_weather>", "</function>", "<parameter=city>", "</parameter>"),
    *(
        "<|channel|>analysis<|message|>",
        "<|start|>assistant",
        "<|end|>",
        "<|call|>",
        "to=functions.",
    ),
    *('{"name": "get_weather", "arguments": ', '{"city": "x", "days": 1}', '{"name": "now"', "}}"),
    *(
        "get_weather",
        "now",
        "\n",
        " ",
        "{",
        "}",
        "[",
        "]",
        '"',
        ",",
        ":",
        "\\",
        "null",
        "1e9",
        "```",
    ),
    *(
        "<|python_tag|>",
        "<|tool_calls_section_begin|>",
        "<\uff5ctool▁calls▁begin\uff5c>",
        "functions.now:0",
    ),
]
GOOD = [
    "It is sunny.",
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Züri", "days": 2}}\n</tool_call>',
    '<think>\nHm.\n</think>\n\nYes.<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
    '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "x"}, "id": "abc123XYZ"}]',
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>",
]


class Reply:
    def __init__(self) -> None:
        self.world = World(n_ctx=32768)
        self.templates = corpus.templates()

    def make(self, rng: random.Random) -> bytes:
        said = rng.choice([*GOOD, "".join(rng.choices(WORDS, k=rng.randrange(1, 20)))])
        said = mutate.text(rng, said, WORDS, GOOD)[:1000]
        case = {"template": rng.randrange(2 * len(self.templates)), "said": said}
        return json.dumps(case).encode()

    def run(self, data: bytes) -> None:
        case = json.loads(data)
        options = {"tools": corpus.TOOLS}
        if case["template"] < len(self.templates):
            options["chat_template"] = self.templates[case["template"]]
        messages = [{"role": "user", "content": "Weather?"}]
        self.world.model.script_chat(messages, case["said"], **options)
        generation = self.world.scheduler.chat(messages, temperature=0, max_tokens=4000, **options)
        joined = "".join(delta.content or "" for delta in generation.deltas())
        message = finish(generation).message
        if message is None or joined != (message["content"] or ""):
            raise BrokenError(f"the deltas {joined!r} are not the message {message!r}")
        for call in message.get("tool_calls", []):
            json.loads(call["function"]["arguments"])

    def settle(self) -> None:
        self.world.settle()


def make_kind(scratch: Path) -> Reply:
    del scratch
    return Reply()
