"""An agent with two tools: a calculator, and a reader of the files in one folder.

    pip install 'pronk[agents]'
    python examples/agent.py "How much is the rent in bills.txt for a whole year?"

The default model is tiny and often gets it wrong; --model takes a larger one, as a GGUF file.
"""

from __future__ import annotations

import argparse
import ast
import functools
import operator
import tempfile
from collections.abc import Callable
from pathlib import Path

import pronk

SYSTEM_PROMPT = (
    "You are an assistant with tools. Use calculate for every calculation and read_file to look "
    "into files. When you know the answer, say it in one short sentence."
)

Number = int | float

_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: dict[type[ast.unaryop], Callable[[Number], Number]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def calculate(expression: str) -> Number:
    """Calculate the value of an arithmetic expression.

    Args:
        expression: Numbers, + - * / // % and parentheses, for example "12 * (3 + 4)".
    """
    if len(expression) > 200:
        raise ValueError("the expression is longer than 200 characters")
    return _value(ast.parse(expression.strip(), mode="eval").body)


def _value(node: ast.expr) -> Number:
    """Evaluate what is arithmetic. Nothing else ever runs, so no model can do harm with it."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value  # type: ignore[return-value] # just checked
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand))
    raise ValueError(f"no arithmetic: {ast.unparse(node)}")


def read_file(folder: Path, name: str) -> str:
    """Read a text file.

    Args:
        name: Name of the file, for example "notes.txt".
    """
    path = (folder / name).resolve()
    # Resolved first, so that neither ".." nor a link leads out.
    if not path.is_relative_to(folder.resolve()):
        raise PermissionError(f"{name} is outside the folder")
    if not path.is_file():
        known = ", ".join(sorted(each.name for each in folder.iterdir()))
        raise FileNotFoundError(f"no file {name}, there are: {known}")
    return path.read_text(encoding="utf-8")[:4000]


def tools(folder: Path) -> list[Callable[..., object]]:
    """The tools. What is bound by name, here the folder, the model neither sees nor chooses."""
    return [calculate, functools.partial(read_file, folder=folder)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("question", nargs="?", default="How much is 37 * 12 + 5?")
    parser.add_argument("--model", help="a GGUF file; pronk's default model")
    options = parser.parse_args()

    engine = pronk.InferenceEngine.load(options.model or pronk.default_model(), progress=True)
    with (
        tempfile.TemporaryDirectory() as name,
        pronk.InferenceScheduler(1, engine=engine, n_ctx=4096) as scheduler,
    ):
        folder = Path(name)
        (folder / "bills.txt").write_text("Rent per month: 850\nPower per month: 40\n")
        agent = pronk.Agent(
            scheduler,
            system_prompt=SYSTEM_PROMPT,
            tools=tools(folder),
            max_iterations=5,
            max_tokens=256,
            temperature=0,
        )
        for event in agent.stream(options.question):
            if event.type == "text":
                print(event.text, end="", flush=True)
            elif event.type == "tool_result" and event.result is not None:
                print(f"\n[{event.result.call.name} {event.result.call.arguments}]")
                print(f"[{event.result.status}: {event.result.content}]")
            elif event.completion is not None:
                print(f"\n{event.completion.reason}, {event.completion.iterations} model calls")


if __name__ == "__main__":
    main()
