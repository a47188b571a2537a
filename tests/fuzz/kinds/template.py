"""Chat templates in Jinja: made by rules, and by changing those of llama.cpp's collection."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

from fuzz import corpus, mutate
from fuzz.world import World

NAMES = [
    *("messages", "tools", "bos_token", "eos_token", "add_generation_prompt", "message", "loop"),
    *("enable_thinking", "undefined_name", "ns", "x", "loop.index", "loop.previtem", "messages[0]"),
    *(
        "message.role",
        "message['content']",
        "message.tool_calls",
        "messages[-1].content",
        "tools[0]",
    ),
]
FILTERS = [
    *(
        "tojson",
        "length",
        "upper",
        "lower",
        "trim",
        "string",
        "int",
        "float",
        "list",
        "first",
        "last",
    ),
    *(
        "items",
        "dictsort",
        "sort",
        "reverse",
        "unique",
        "join",
        "join(', ')",
        "default('x')",
        "abs",
    ),
    *(
        "tojson(indent=2)",
        "tojson(indent=-1)",
        "indent(2)",
        "replace('a', 'b')",
        "replace('', 'b')",
    ),
    *("map(attribute='role')", "map('upper')", "selectattr('role', 'equalto', 'user')", "batch(2)"),
    *(
        "rejectattr('x')",
        "select('string')",
        "join(1)",
        "round",
        "sum",
        "max",
        "min",
        "title",
        "safe",
    ),
    *(
        "tojson(ensure_ascii=False)",
        "int(base=2)",
        "truncate(3)",
        "wordcount",
        "e",
        "nothing",
        "slice(0)",
    ),
]
TESTS = [
    *("defined", "none", "string", "number", "mapping", "iterable", "sequence", "boolean", "true"),
    *("undefined", "in messages", "divisibleby(0)", "equalto(1)", "sameas(none)", "odd", "nothing"),
]
METHODS = [
    *(
        ".split()",
        ".split('')",
        ".split('a', -1)",
        ".strip()",
        ".strip('')",
        ".lstrip('\\n')",
        ".upper()",
    ),
    *(
        ".items()",
        ".keys()",
        ".get('role')",
        ".get()",
        ".startswith('a')",
        ".endswith('')",
        ".title()",
    ),
    *(
        ".append(1)",
        ".pop()",
        ".pop(99)",
        ".replace('a', '')",
        ".find('x')",
        ".join([])",
        ".format()",
    ),
    *(
        "[0]",
        "[-1]",
        "[99]",
        "['x']",
        "[:]",
        "[1:]",
        "[::-1]",
        "[::0]",
        "[-5:2]",
        "[99:]",
        "[none:]",
    ),
    *(
        ".role",
        ".x.y",
        "()",
        "(1, a=2)",
        "[messages]",
        "[1e9]",
        "[9223372036854775807:]",
        ".insert(9, 1)",
    ),
]
LITERALS = [
    *(
        "0",
        "1",
        "-1",
        "1.5",
        "1e308",
        "9223372036854775807",
        "9223372036854775808",
        "'a'",
        '"\\n"',
        "''",
    ),
    *(
        "none",
        "true",
        "[]",
        "{}",
        "[1, 'a']",
        "{'a': 1}",
        "(1,)",
        "'é漢🙂'",
        "'%s'",
        "namespace(x=1)",
    ),
    *(
        "range(3)",
        "range(5, 1, -2)",
        "range(0, 9, 0)",
        "dict(a=1)",
        "joiner()",
        "cycler(1)",
        "raise_exception('x')",
    ),
    *(
        "strftime_now('%Y')",
        "strftime_now('%Q')",
        "strftime_now('')",
        "lipsum()",
        "'a' * 3",
        "-'a'",
    ),
]
OPERATORS = [
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "~",
    "==",
    "!=",
    "<",
    ">=",
    "and",
    "or",
    "in",
    "not in",
]
TAGS = [
    *(
        "{{",
        "}}",
        "{%",
        "%}",
        "{#",
        "#}",
        "{{-",
        "-}}",
        "{%-",
        "-%}",
        "{% endif %}",
        "{% endfor %}",
    ),
    *(
        "{% else %}",
        "{% if true %}",
        "{% set x = 1 %}",
        "{% break %}",
        "{% continue %}",
        "{% raw %}",
    ),
    *(
        "{% generation %}",
        "{% endset %}",
        "{% filter upper %}",
        "{% call x() %}",
        "{% include 'x' %}",
    ),
    *(
        "{% for a, b in {'a': 1}.items() %}",
        "{% macro m(a, b=1) %}",
        "{% endmacro %}",
        "{{ m(1) }}",
    ),
]
WORDS = [*NAMES, *FILTERS, *TESTS, *METHODS, *LITERALS, *OPERATORS, *TAGS, "|", "(", ")", "is not"]


class Template:
    def __init__(self) -> None:
        self.world = World(n_ctx=64)
        self.texts = corpus.templates()

    def make(self, rng: random.Random) -> bytes:
        if rng.random() < 0.5:
            source = block(rng, 3)
            if rng.random() < 0.3:
                source = mutate.text(rng, source, WORDS)
        else:
            source = exchange(rng, rng.choice(self.texts))
            if rng.random() < 0.5:
                source = mutate.text(rng, source, WORDS, self.texts)
        case = {"template": source, "tools": rng.random() < 0.4, "n": rng.randrange(1, 7)}
        return json.dumps(case).encode()

    def run(self, data: bytes) -> None:
        case = json.loads(data)
        options: dict[str, Any] = {"chat_template": case["template"]}
        if case["tools"]:
            options["tools"] = corpus.TOOLS
        self.world.model.engine.render_chat(corpus.MESSAGES[-case["n"] :], **options)

    def settle(self) -> None:
        self.world.settle()


def expression(rng: random.Random, depth: int) -> str:
    kind = rng.randrange(9)
    if depth == 0 or kind <= 1:
        return rng.choice(NAMES if rng.random() < 0.6 else LITERALS)
    inner = expression(rng, depth - 1)
    if kind == 2:
        return f"{inner} | {rng.choice(FILTERS)}"
    if kind == 3:
        return f"({inner}) {rng.choice(OPERATORS)} {expression(rng, depth - 1)}"
    if kind == 4:
        return f"{inner}{rng.choice(METHODS)}"
    if kind == 5:
        return f"{inner} is {rng.choice(['', 'not '])}{rng.choice(TESTS)}"
    if kind == 6:
        return f"({inner} if {expression(rng, depth - 1)} else {rng.choice(LITERALS)})"
    if kind == 7:
        return f"{rng.choice(['not ', '-', '[', '('])}{inner}{rng.choice(['', ']', ')'])}"
    return f"{{'a': {inner}, {rng.choice(LITERALS)}: 1}}"


def block(rng: random.Random, depth: int) -> str:
    return "".join(statement(rng, depth) for _ in range(rng.randrange(1, 5)))


def statement(rng: random.Random, depth: int) -> str:
    kind = rng.randrange(8)
    made = expression(rng, rng.randrange(4))
    if kind <= 2 or depth == 0:
        return f"{{{{{rng.choice(['-', ' '])}{made} }}}}"
    if kind == 3:
        names = rng.choice(["message", "a, b", "x"])
        source = rng.choice(["messages", "tools", "range(3)", f"({made})"])
        return f"{{% for {names} in {source} %}}{block(rng, depth - 1)}{{% endfor %}}"
    if kind == 4:
        other = f"{{% else %}}{block(rng, depth - 1)}" if rng.random() < 0.5 else ""
        return f"{{% if {made} %}}{block(rng, depth - 1)}{other}{{% endif %}}"
    if kind == 5:
        return f"{{% set {rng.choice(['x', 'ns.x', 'ns', 'messages'])} = {made} %}}"
    if kind == 6:
        return f"{{% macro m(a, b=1) %}}{made}{{% endmacro %}}{{{{ m({made}) }}}}"
    return mutate.odd_text(rng, TAGS)


def exchange(rng: random.Random, source: str) -> str:
    """Change whole tags: leave out, double, move, or put in an expression of another kind."""
    parts = re.split(r"(\{[%{].*?[%}]\})", source, flags=re.DOTALL)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(parts))
        kind = rng.randrange(5)
        if kind == 0:
            parts[at] = ""
        elif kind == 1:
            parts[at] *= 2
        elif kind == 2:
            other = rng.randrange(len(parts))
            parts[at], parts[other] = parts[other], parts[at]
        elif kind == 3:
            name = rng.choice(NAMES)
            parts[at] = parts[at].replace(name, expression(rng, 2), 1)
        else:
            parts[at] += f"{{{{ {expression(rng, 3)} }}}}"
    return "".join(parts)


def make_kind(scratch: Path) -> Template:
    del scratch
    return Template()
