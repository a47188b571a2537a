"""Every chat template that llama.cpp ships renders as transformers renders it.

Where it does not, ``DIFFERENCES`` says why; where transformers cannot, ``REFUSED`` does.
"""

from __future__ import annotations

import copy
import html
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import reference_templates

import pronk
from pronk.testing import ScriptedModel

FOLDER = Path(__file__).parents[2] / "vendor" / "llama.cpp" / "models" / "templates"
TEMPLATES = sorted(path.name for path in FOLDER.glob("*.jinja"))

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the weather.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Where"},
                    "days": {"type": "integer", "description": "How many"},
                },
                "required": ["city"],
            },
        },
    }
]
CALL = {
    "id": "abc123XYZ",
    "type": "function",
    "function": {
        "name": "get_weather",
        "arguments": json.dumps({"city": "Zürich", "days": 2}, ensure_ascii=False),
    },
}
SYSTEM: dict[str, Any] = {"role": "system", "content": "Be brief."}
USER: dict[str, Any] = {"role": "user", "content": "Weather in <Zürich> & elsewhere?"}
THANKS: dict[str, Any] = {"role": "user", "content": "Thanks!\nAnd now?"}
CONVERSATION: list[dict[str, Any]] = [
    SYSTEM,
    USER,
    {"role": "assistant", "content": "I look it up.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "abc123XYZ", "name": "get_weather", "content": "sunny"},
    {"role": "assistant", "content": "It is sunny."},
    THANKS,
]
PLAIN = [USER, {"role": "assistant", "content": "It is sunny."}, THANKS]

# What transformers cannot render, with tools: the error, and why.
REFUSED = {
    # Their list is built by append(), which the sandbox of transformers forbids.
    "Kimi-K2-Instruct.jinja": "append",
    "Kimi-K2-Thinking.jinja": "append",
    # Wants the tools under another name, functions, which nobody passes.
    "fireworks-ai-llama-3-firefunction-v2.jinja": "functions",
    # Written for llama.cpp: turns a generator of Jinja2 into JSON.
    "llama-cpp-deepseek-r1.jinja": "generator",
    # Knows users and the model only, not tools; pronk says so too.
    "google-gemma-2-2b-it.jinja": "role",
}
# What llama.cpp renders otherwise, with tools.
DIFFERENCES = {
    # Its handler puts tool results into the model's turn, which the format asks for; this template
    # as it stands would open turns of a role that the model does not know.
    "google-gemma-4-31B-it-interleaved.jinja",
}
# llama.cpp passes today as date_string; these fall back to 26 Jul 2024 without it, where others ask
# for the day themselves.
DATED = {"meta-llama-Llama-3.1-8B-Instruct.jinja", "meta-llama-Llama-3.3-70B-Instruct.jinja"}
# Marks its own words as `safe`, whereupon Jinja2 escapes for HTML what it joins to them.
ESCAPED = {"meetkai-functionary-medium-v3.1.jinja"}


@pytest.fixture(scope="module")
def engine() -> pronk.InferenceEngine:
    return ScriptedModel().engine


def references(name: str, messages: list[dict[str, Any]], **variables: Any) -> list[str]:
    """Render with arguments as objects, which transformers asks for, and as OpenAI has them.

    Of the two, a template is made for one.
    """
    source = (FOLDER / name).read_text(encoding="utf-8")
    if name in DATED:
        variables["date_string"] = datetime.now().strftime("%d %b %Y")
    texts = []
    errors = []
    for as_objects in (True, False):
        changed = copy.deepcopy(messages)
        for message in changed:
            for call in message.get("tool_calls", []):
                if as_objects:
                    call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        try:
            text = reference_templates.render(
                source,
                messages=changed,
                bos_token="<bos>",
                eos_token="<eos>",
                enable_thinking=True,
                **variables,
            )
        except Exception as error:
            errors.append(error)
        else:
            texts.append(html.unescape(text) if name in ESCAPED else text)
    if not texts:
        raise errors[0]
    return texts


def both(
    engine: pronk.InferenceEngine, name: str, messages: list[dict[str, Any]], **options: Any
) -> tuple[str, list[str]]:
    """Render both ways, on one day: some templates write the date."""
    source = (FOLDER / name).read_text(encoding="utf-8")
    while True:
        day = datetime.now().date()
        text = engine.render_chat(messages, chat_template=source, **options)
        expected = references(name, messages, **options)
        if datetime.now().date() == day:
            return text, expected


def test_there_are_templates() -> None:
    if not FOLDER.exists():
        pytest.skip("a source distribution of llama.cpp without its templates")
    assert len(TEMPLATES) > 60
    assert (REFUSED.keys() | DIFFERENCES | DATED | ESCAPED) <= set(TEMPLATES)


@pytest.mark.parametrize("name", TEMPLATES)
def test_conversation_with_tools(engine: pronk.InferenceEngine, name: str) -> None:
    source = (FOLDER / name).read_text(encoding="utf-8")
    if name in REFUSED:
        with pytest.raises(Exception, match=REFUSED[name]):
            references(name, CONVERSATION, tools=TOOLS)
        if name == "google-gemma-2-2b-it.jinja":
            with pytest.raises(pronk.InvalidArgumentError, match="role"):
                engine.render_chat(CONVERSATION, tools=TOOLS, chat_template=source)
        else:
            text = engine.render_chat(CONVERSATION, tools=TOOLS, chat_template=source)
            assert "It is sunny." in text
        return
    text, expected = both(engine, name, CONVERSATION, tools=TOOLS)
    if name in DIFFERENCES:
        assert text not in expected  # else the list is out of date
        assert "sunny" in text
    else:
        assert text in expected


@pytest.mark.parametrize("name", TEMPLATES)
def test_conversation_without_tools(engine: pronk.InferenceEngine, name: str) -> None:
    if name == "fireworks-ai-llama-3-firefunction-v2.jinja":
        # Cannot do without functions either.
        with pytest.raises(Exception, match=REFUSED[name]):
            references(name, PLAIN)
        source = (FOLDER / name).read_text(encoding="utf-8")
        assert "And now?" in engine.render_chat(PLAIN, chat_template=source)
        return
    text, expected = both(engine, name, PLAIN)
    assert text in expected
