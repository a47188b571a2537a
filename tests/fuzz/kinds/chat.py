"""Messages, tools and options of chats, as programs pass them on from anybody."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from fuzz import corpus, mutate
from fuzz.kinds import schema
from fuzz.world import World, finish

WORDS = [
    *(
        "role",
        "content",
        "tool_calls",
        "tool_call_id",
        "name",
        "type",
        "function",
        "arguments",
        "id",
    ),
    *("system", "developer", "user", "assistant", "tool", "text", "parameters", "description"),
    *("reasoning_content", "properties", "required", "image_url", "<|im_start|>", "<|im_end|>"),
    *(
        "<bos>",
        "<eos>",
        "<eot>",
        "<tool_call>",
        "</tool_call>",
        "\ufdd0",
        "{{ x }}",
        "{% if %}",
        "{}",
    ),
    *("get_weather", "now", "auto", "none", "required", "enable_thinking", "</think>", "<think>"),
]


class Chat:
    def __init__(self) -> None:
        self.world = World()
        self.templates = corpus.templates()

    def make(self, rng: random.Random) -> bytes:
        call: dict[str, Any] = {"messages": corpus.MESSAGES, "options": {}}
        if rng.random() < 0.4:
            call["messages"] = rng.sample(corpus.MESSAGES, rng.randrange(1, 5))
        if rng.random() < 0.6:
            call["options"]["tools"] = corpus.TOOLS
        if rng.random() < 0.3:
            choices = ["auto", "none", "required", "now", "nope", {"type": "function"}, 1, ""]
            call["options"]["tool_choice"] = rng.choice(choices)
        if rng.random() < 0.2:
            call["options"]["parallel_tool_calls"] = rng.choice([True, False, None, 1])
        if rng.random() < 0.2:
            call["options"]["template_kwargs"] = rng.choice(
                [{}, {"enable_thinking": False}, {"messages": []}, {"bos_token": 1}, [], "x"]
            )
        if rng.random() < 0.4:
            call["template"] = rng.randrange(len(self.templates))
        for name in ("messages", "tools", "template_kwargs"):
            holder = call if name == "messages" else call["options"]
            if name in holder and rng.random() < 0.6:
                special = schema.part if name == "tools" else None
                holder[name] = mutate.json_value(rng, holder[name], WORDS, special)
        return json.dumps(call).encode()

    def run(self, data: bytes) -> None:
        call = json.loads(data)
        options = call["options"]
        if "template" in call:
            options["chat_template"] = self.templates[call["template"] % len(self.templates)]
        self.world.model.engine.render_chat(call["messages"], **options)
        finish(self.world.scheduler.chat(call["messages"], max_tokens=4, seed=1, **options))

    def settle(self) -> None:
        self.world.settle()


def make_kind(scratch: Path) -> Chat:
    del scratch
    return Chat()
