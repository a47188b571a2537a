"""The benchmarks run, and what they write can be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import child_environment

PROJECT = Path(__file__).resolve().parents[2]


def run_benchmarks(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
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
