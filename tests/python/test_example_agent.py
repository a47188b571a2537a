"""The tools of examples/agent.py do what they say, and nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from agent_rig import Message, ScriptedScheduler, call

import pronk

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("agent", PROJECT / "examples" / "agent.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("expression", "value"),
    [("12 * (3 + 4)", 84), ("-7 // 2", -4), ("7 % 4 + 1.5", 4.5), (" 1/4 ", 0.25), ("+-+1", -1)],
)
def test_calculates(example: ModuleType, expression: str, value: float) -> None:
    assert example.calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "x",
        "2 ** 9999999",
        "__import__('os').system('true')",
        "().__class__",
        "'a' * 3",
        "True + 1",
        "1j",
        "[1][0]",
        "1 if 1 else 2",
        "1 < 2",
        "1 / 0",
        "(" * 150,
        "1+" * 100 + "1",
    ],
)
def test_calculates_nothing_else(example: ModuleType, expression: str) -> None:
    with pytest.raises((ValueError, SyntaxError, ZeroDivisionError)):
        example.calculate(expression)


def test_reads_files_of_the_folder_alone(example: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "a.txt").write_text("a" * 10_000)
    (folder / "sub" / "b.txt").write_text("b")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    assert example.read_file(folder, "a.txt") == "a" * 4000
    assert example.read_file(folder, "sub/b.txt") == "b"
    for outside in ("../secret.txt", str(tmp_path / "secret.txt"), "link.txt", "sub/../../x"):
        with pytest.raises(PermissionError):
            example.read_file(folder, outside)
    with pytest.raises(FileNotFoundError, match=r"a\.txt, link\.txt, sub"):
        example.read_file(folder, "c.txt")


def test_the_model_does_not_see_the_folder(example: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "bills.txt").write_text("Rent: 850")

    def reply(messages: list[Message]) -> str:
        results = [message["content"] for message in messages if message["role"] == "tool"]
        if not results:
            return call("read_file", name="bills.txt")
        return results[1] if len(results) > 1 else call("calculate", expression="850 * 12")

    with ScriptedScheduler(reply) as scheduler:
        agent = pronk.Agent(scheduler, tools=example.tools(tmp_path))
        assert [list(each.schema["properties"]) for each in agent.tools] == [
            ["expression"],
            ["name"],
        ]
        result = agent.run("How much is the rent for a year?")
    assert (result.text, result.reason) == ("10200", "done")
    assert [each.content for each in result.results] == ["Rent: 850", "10200"]
