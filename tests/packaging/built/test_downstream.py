"""Other projects build against the installed wheel: nanobind extensions and plain C++ programs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from built.installation import PROJECT, Environment

EXAMPLES = PROJECT / "examples/embed"
TEXTS = ("Once upon a time", "The second", "The third")


def install_project(environment: Environment, source: Path, copy: Path) -> None:
    """Install a project from a copy, so that its build leaves nothing in this one."""
    shutil.copytree(source, copy)
    environment.install("--no-build-isolation", "--no-deps", copy)


def test_a_package_that_embeds_pronk(installed: Environment, tmp_path: Path) -> None:
    copy = tmp_path / "downstream"
    install_project(installed, PROJECT / "tests/downstream", copy)
    print(installed.run("python", "-m", "pytest", cwd=copy))


@pytest.fixture(scope="module")
def extension(installed: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example of an extension, installed; its folder."""
    copy = tmp_path_factory.mktemp("example") / "extension"
    install_project(installed, EXAMPLES / "extension", copy)
    return copy


def test_the_example_of_an_extension(installed: Environment, extension: Path, model: Path) -> None:
    lines = installed.run("python", extension / "run.py", model).splitlines()
    assert len(lines) == 9
    assert lines[-1] == "16 permits, at most 2 at once"
    # The second call of each agent begins with what its first one left in the cache.
    assert all(int(re.findall(r"\((\d+) tokens reused\)", line)[0]) > 20 for line in lines[:-1])


@pytest.mark.usefixtures("extension")
def test_the_example_of_an_extension_heeds_ctrl_c(installed: Environment) -> None:
    code = """
import os, signal, threading
import agents_in_cpp, pronk, pronk.testing

signal.signal(signal.SIGINT, signal.default_int_handler)
model = pronk.testing.ScriptedModel()
model.hold()

def interrupt():
    assert model.wait_held(60)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
with pronk.InferenceScheduler(1, engine=model.engine) as scheduler:
    try:
        agents_in_cpp.run_agents(scheduler, ["one", "two", "three"])
    except KeyboardInterrupt:
        print("interrupted")
    model.resume()
    with scheduler.acquire(timeout=60):
        print("and free again")
"""
    said = installed.run("python", "-X", "faulthandler", "-c", code)
    assert said.splitlines() == ["interrupted", "and free again"]


@pytest.mark.usefixtures("extension")
def test_the_example_of_an_extension_raises_our_errors(installed: Environment) -> None:
    code = """
import agents_in_cpp, pronk

with pronk.InferenceScheduler(1) as scheduler:
    try:
        agents_in_cpp.run_agents(scheduler, ["one", "two"])
    except pronk.PoolNotInitialisedError:
        print("no pool")
"""
    assert installed.run("python", "-c", code) == "no pool\n"


def test_the_example_of_a_program(installed: Environment, model: Path, tmp_path: Path) -> None:
    # As docs/embedding.md says, with a path that has to work without any Python.
    directory = installed.run("python", "-m", "pronk", "--cmake-dir").strip()
    configure = ["-S", EXAMPLES / "program", "-B", tmp_path, f"-Dpronk_DIR={directory}"]
    installed.run("cmake", *configure, "-G", "Ninja")
    installed.run("cmake", "--build", tmp_path)
    program = tmp_path / "continue_text"
    said = subprocess.run(
        [program, model, *TEXTS],
        env={},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout

    code = """
import sys, pronk

engine = pronk.InferenceEngine.load(sys.argv[1])
with pronk.InferenceScheduler(1, engine=engine) as scheduler:
    for text in sys.argv[2:]:
        print(text + scheduler.generate(text, max_tokens=32, temperature=0).result().text)
"""
    assert said == installed.run("python", "-c", code, model, *TEXTS)
    needed = ["otool", "-L"] if sys.platform == "darwin" else ["ldd"]
    assert "libpython" not in subprocess.check_output([*needed, program], text=True)
