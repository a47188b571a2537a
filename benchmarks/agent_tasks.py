"""How often an agent with the two tools of `examples/agent.py` completes each of ten tasks.

No measure of speed, and as much of the model as of pronk: it shows what to expect of a model of
that size. A task is completed if the answer has the right value in it and the tools that it needs
were called. Each is run with several seeds, at the default temperature, in two ways: plain, as in
the example; and guided, which small models need: the conversation begins with a use of each tool,
and the first model call is kept to a call of a tool (`tool_choice="required"`).

usage: python -m benchmarks.agent_tasks [--model FILE] [--seeds 5] [--output FILE]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pronk
from benchmarks import machine
from benchmarks.settings import PROJECT, Settings

FILES = {
    "bills.txt": "Rent per month: 850\nPower per month: 40\n",
    "garden.txt": "The garden is 12 metres long and 7 metres wide.\n",
    "greeting.txt": "The password is marigold.\n",
    "team.txt": "Anna is the captain. Ben keeps the goal.\n",
}


@dataclass(frozen=True)
class Task:
    """A question, what its answer must contain, and the tools without which it is a guess."""

    question: str
    answer: str
    needs: tuple[str, ...]


TASKS = (
    Task("What is 12 * 34?", "408", ("calculate",)),
    Task("What is 1000 - 357?", "643", ("calculate",)),
    Task("Calculate 7 * (8 + 9).", "119", ("calculate",)),
    Task("What is 144 / 12?", "12", ("calculate",)),
    Task("What is 123456 + 654321?", "777777", ("calculate",)),
    Task("What is the password in greeting.txt?", "marigold", ("read_file",)),
    Task("Read team.txt. Who is the captain?", "Anna", ("read_file",)),
    Task("Read bills.txt. How much is the rent per month?", "850", ("read_file",)),
    Task(
        "Read bills.txt and calculate the rent for 12 months.", "10200", ("read_file", "calculate")
    ),
    Task(
        "Read garden.txt and calculate the area of the garden in square metres.",
        "84",
        ("read_file", "calculate"),
    ),
)


def use(question: str, name: str, arguments: dict[str, str], result: str, answer: str) -> Any:
    """The messages of one use of a tool."""
    call = {"name": name, "arguments": json.dumps(arguments)}
    identifier = f"{name:.9}"
    return [
        {"role": "user", "content": question},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": identifier, "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": identifier, "name": name, "content": result},
        {"role": "assistant", "content": answer},
    ]


USES = (
    *use("What is 25 * 4?", "calculate", {"expression": "25 * 4"}, "100", "25 * 4 is 100."),
    *use(
        "Read colours.txt. What is the best colour?",
        "read_file",
        {"name": "colours.txt"},
        "The best colour is green.",
        "The best colour is green.",
    ),
)
GUIDED: dict[bool, dict[str, Any]] = {False: {}, True: {"tool_choice": "required"}}


@dataclass
class Tally:
    """What became of a task."""

    question: str
    guided: bool
    runs: int = 0
    completed: int = 0
    called: int = 0
    """Runs in which the tools that it needs gave a result."""
    reasons: dict[str, int] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    """Calls of tools, by status."""


def example() -> ModuleType:
    """Load `examples/agent.py`."""
    spec = importlib.util.spec_from_file_location("agent", PROJECT / "examples" / "agent.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def completes(task: Task, result: pronk.AgentResult) -> tuple[bool, bool]:
    """Return whether the tools were called, and whether the answer is right besides."""
    used = {each.call.name for each in result.results if each.status == "ok"}
    called = used.issuperset(task.needs)
    said = re.sub(r"(?<=\d),(?=\d{3})", "", result.text)
    right = re.search(rf"(?<![\w.]){task.answer}(?!\w|[.]\d*[1-9])", said) is not None
    return called, called and right and result.reason == "done"


def run(
    scheduler: pronk.InferenceScheduler, task: Task, seeds: int, folder: Path, guided: bool
) -> Tally:
    agent_example = example()
    tally = Tally(task.question, guided)
    for seed in range(1, seeds + 1):
        agent = pronk.Agent(
            scheduler,
            system_prompt=agent_example.SYSTEM_PROMPT,
            tools=agent_example.tools(folder),
            conversation=pronk.Conversation(USES if guided else ()),
            max_iterations=5,
            max_tokens=192,
            seed=seed,
            **GUIDED[guided],
        )
        result = agent.run(task.question)
        called, completed = completes(task, result)
        tally.runs += 1
        tally.called += called
        tally.completed += completed
        tally.reasons[result.reason] = tally.reasons.get(result.reason, 0) + 1
        for each in result.results:
            tally.results[each.status] = tally.results.get(each.status, 0) + 1
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="a GGUF file; pronk's default model")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each task in each way")
    parser.add_argument("--output", type=Path, help="write the counts as JSON there too")
    options = parser.parse_args()

    settings = Settings(model=options.model)
    tallies: list[Tally] = []
    with (
        tempfile.TemporaryDirectory() as name,
        pronk.InferenceScheduler(1, engine=settings.engine, n_ctx=4096) as scheduler,
    ):
        for file, text in FILES.items():
            Path(name, file).write_text(text, encoding="utf-8")
        for guided in (False, True):
            print("guided:" if guided else "plain:")
            for task in TASKS:
                tally = run(scheduler, task, options.seeds, Path(name), guided)
                tallies.append(tally)
                print(
                    f"{tally.completed:3} of {tally.runs} completed, "
                    f"{tally.called:3} called: {task.question}",
                    flush=True,
                )
    for guided in (False, True):
        mine = [tally for tally in tallies if tally.guided is guided]
        runs = sum(tally.runs for tally in mine)
        print(
            f"{'guided' if guided else 'plain'}: "
            f"{sum(tally.completed for tally in mine)} of {runs} runs completed their task, "
            f"{sum(tally.called for tally in mine)} called the tools that it needs"
        )
    if options.output is not None:
        document = {**machine.describe(settings), "tasks": [asdict(tally) for tally in tallies]}
        options.output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
