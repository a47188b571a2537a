"""What mutants start from: things that are good, and some that are known to be bad.

Files of llama.cpp's own are taken along where its whole source is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

LLAMA = Path(__file__).resolve().parents[2] / "vendor" / "llama.cpp"


def _texts(folder: str, pattern: str) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted((LLAMA / folder).glob(pattern))]


def grammars() -> list[str]:
    doubling = "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(5))
    own = [
        'root ::= "yes" | "no"',
        'root ::= [a-c]{3} "-" [0-9]+ "!"',
        'root ::= "é" "漢"? "🙂"',
        '# words\nroot ::= word (" " word){2}\nword ::= "ab" | "cd"',
        'root ::= ("(" root ")")? "x"',
        'root ::= root2\nroot2 ::= "a" | root2',
        'root ::= e\ne ::= "a" | "a" e "b"? | "a" e "c"?',
        'root ::= "x" <bos> <[97]> !<[98]> "y"',
        f'{doubling}\nr5 ::= "a"?\nroot ::= r0',
        'root ::= ("a"? "b"?){16} [^\\x00-\\x1f"\\\\]{0,2000}',
        'root ::= obj\nobj ::= "{" ws (str ":" ws val ("," ws str ":" ws val)*)? "}"\n'
        'val ::= str | obj | [0-9]+\nstr ::= "\\"" [^"\\\\]* "\\""\nws ::= [ \\t\\n]{0,20}',
    ]
    return own + _texts("grammars", "*.gbnf")


def templates() -> list[str]:
    from tiny_models.chat_template import CHAT_TEMPLATE

    simple = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    return [simple, CHAT_TEMPLATE, *_texts("models/templates", "*.jinja")]


MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather in <Zürich> & elsewhere? <|im_end|>"},
    {
        "role": "assistant",
        "content": "I look it up.",
        "reasoning_content": "Hm.",
        "tool_calls": [
            {
                "id": "abc123XYZ",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Zürich", "days": 2}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "abc123XYZ", "name": "get_weather", "content": "sunny"},
    {"role": "assistant", "content": "It is sunny."},
    {"role": "user", "content": [{"type": "text", "text": "Thanks!\nAnd now?"}]},
]
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the weather.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Where <eos>"},
                    "days": {"type": "integer", "minimum": 0, "maximum": 9},
                },
                "required": ["city"],
            },
        },
    },
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}},
]
