"""The benchmarks run, and what they write can be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conftest import child_environment

import pronk

PROJECT = Path(__file__).resolve().parents[2]
sys.path.append(str(PROJECT))

from benchmarks import json_shapes, shop_tools  # noqa: E402
from benchmarks.model_cost import ModelCost  # noqa: E402
from benchmarks.workloads import agent_tools  # noqa: E402


def run_benchmarks(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        env=child_environment(),
        cwd=PROJECT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("results")
    run_benchmarks("run", "gate", "scale", "--quick", "--rounds", 2, "--output", directory)
    return directory


@pytest.mark.parametrize("workload", ["gate", "scale"])
def test_a_result_states_all_that_is_needed_to_judge_it(results: Path, workload: str) -> None:
    document = json.loads((results / f"{workload}.json").read_text(encoding="utf-8"))
    assert document["schema"] == 1
    assert document["workload"] == workload
    assert document["settings"]["quick"] is True
    assert document["date"].endswith("+00:00")
    assert document["machine"]["cpu"]
    assert document["machine"]["usable_cpus"] >= 1
    assert document["build"]["pronk"]["llama_cpp_commit"]
    assert set(document["commit"]) == {"id", "dirty"}
    assert document["cases"]
    for case in document["cases"]:
        check_case(case)


@pytest.fixture(scope="module")
def model_results(tmp_path_factory: pytest.TempPathFactory, tiny_plain: Path) -> Path:
    directory = tmp_path_factory.mktemp("model-results")
    arguments = ["--quick", "--no-peers", "--rounds", 2, "--model", tiny_plain]
    run_benchmarks("run", "agent_tools", "limits", *arguments, "--output", directory)
    return directory


def test_every_tool_call_is_valid(model_results: Path) -> None:
    document = json.loads((model_results / "agent_tools.json").read_text(encoding="utf-8"))
    (case,) = document["cases"]
    assert [sample["valid"] for sample in case["samples"]["pronk"]] == [100, 100]
    assert all(sample["tokens"] > 0 for sample in case["samples"]["pronk"])


@pytest.mark.parametrize("shape", [shop_tools.CALL, shop_tools.SHORT_CALL], ids=["long", "short"])
def test_the_grammar_of_a_shape_admits_what_its_schema_does(
    shape: json_shapes.Record, tiny_plain: Path
) -> None:
    engine = pronk.InferenceEngine.load(tiny_plain)
    with pronk.InferenceScheduler(4, engine=engine, n_ctx=1024) as scheduler:
        running = [
            scheduler.generate(
                "", grammar=json_shapes.grammar(shape), max_tokens=900, temperature=2.0, seed=seed
            )
            for seed in range(4)
        ]
        texts = [generation.result().text for generation in running]
    assert len(set(texts)) > 1
    for text in texts:
        value = json.loads(text)
        jsonschema.validate(value, shape.schema())
        assert text == json.dumps(value)


def test_a_call_beside_the_schema_ends_the_run() -> None:
    schema = shop_tools.SHORT_CALL.schema()
    agent_tools.check('{"tool": "search_orders", "limit": 42}', schema)
    for text in ('{"tool": "search_orders", "limit": 42', '{"tool": "search_orders", "limit": 7}'):
        with pytest.raises(agent_tools.InvalidCallError, match="expected one of the schema"):
            agent_tools.check(text, schema)


def test_the_parts_of_a_step_are_its_whole(model_results: Path) -> None:
    document = json.loads((model_results / "limits.json").read_text(encoding="utf-8"))
    machine, steps, agents = document["cases"]
    for sample in machine["samples"]["this machine"]:
        assert all(value > 0 for value in sample.values())
    for samples in steps["samples"].values():
        for sample in samples:
            parts = sample["batch"] + sample["sample"] + sample["rest"]
            assert parts == pytest.approx(sample["step"])
            assert min(sample["batch"], sample["sample"], sample["rest"], sample["after"]) > 0
    for sample in agents["samples"]["pronk"]:
        keys = ("permit", "queued", "prefill", "decode", "tool", "other")
        assert sum(sample[key] for key in keys) == pytest.approx(100)
        loop = ("loop_decode", "loop_mixed", "loop_prompt", "loop_between")
        assert sum(sample[key] for key in loop) == pytest.approx(100)
        assert 0 < sample["reused"] < 100
    page = (model_results / "limits.md").read_text(encoding="utf-8")
    assert page.count("permit") >= 4
    assert "a quick run, which measures nothing" in page


def test_a_step_costs_at_least_its_matrices() -> None:
    cost = ModelCost(weight_bytes=1000, body=800, head=200, cell_bytes=2, attention=8)
    assert cost.bytes("split", 2, 100) == 1000 + 2 * 256 * 2
    assert cost.bytes("shared", 2, 100) == 1000 + 256 * 2
    assert cost.operations("split", 2, 100) == 2 * 2 * 1000 + 2 * 256 * 8
    assert cost.operations("shared", 2, 200) == 2 * 2 * 1000 + 2 * 512 * 8
    assert cost.prefill_operations(300) == 2 * (300 * 800 + 200) + 300 * 512 * 8


def check_case(case: dict[str, Any]) -> None:
    """Every side was run in every round, and every figure has a value of each round."""
    assert len(case["samples"]) >= 2
    keys = {metric["key"] for metric in case["metrics"]}
    for samples in case["samples"].values():
        assert len(samples) == 2
        for sample in samples:
            assert set(sample) == keys
            assert all(value > 0 for key, value in sample.items() if key != "memory")
    assert case["figures"]
    for figure in case["figures"]:
        assert len(figure["values"]) == 2
        assert figure["min"] <= figure["median"] <= figure["max"]
        if figure["goal"] is not None:
            value, bound = figure["median"], figure["goal"]["bound"]
            at_least = figure["goal"]["sense"] == "at least"
            assert figure["met"] is (value >= bound if at_least else value <= bound)


def test_results_can_be_shown_again(results: Path) -> None:
    text = run_benchmarks("report", results, "--markdown")
    assert "### The gate alone" in text
    assert "### Cost of an item as the number grows" in text
    assert text.count("| ") > 20


def test_every_workload_is_listed() -> None:
    text = run_benchmarks("list")
    modules = (PROJECT / "benchmarks" / "workloads").glob("[a-z]*.py")
    for name in [path.stem for path in modules]:
        assert name in text
