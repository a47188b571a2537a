"""pronk beside llama-cpp-python, which loads another llama.cpp and ggml into the process."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from built.installation import PROJECT, Environment, run

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "coexistence.py"
NAMES = ("pronk", "llama_cpp")


@pytest.fixture(scope="module")
def libraries() -> Path:
    """The folder of a shared llama.cpp."""
    tree = PROJECT / "build" / "shared-llama"
    tools = Path(sys.executable).parent
    configure = ["-S", HERE / "shared_llama", "-B", tree, "-G", "Ninja"]
    run(
        tools / "cmake",
        *configure,
        f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}",
        cwd=PROJECT,
    )
    run(tools / "cmake", "--build", tree, "--target", "llama", cwd=PROJECT)
    return tree / "bin"  # llama.cpp chooses that


@pytest.fixture(scope="module")
def both(installed: Environment, libraries: Path) -> Environment:
    """An environment with pronk and llama-cpp-python."""
    pin = (PROJECT / "vendor/llama.cpp.pin").read_text(encoding="utf-8")
    fields = dict(line.split() for line in pin.splitlines() if not line.startswith("#"))
    # Its Python part from the package, its native part as above: its own build takes minutes, and
    # compiles much that is of no use here.
    package = f"{fields['package']}=={fields['version']}"
    options = ("--no-deps", "--no-build-isolation", "-C", "cmake.define.LLAMA_BUILD=OFF")
    installed.install(*options, "--no-binary", fields["package"], package)
    installed.install("diskcache", "jinja2", "typing-extensions")
    destination = installed.site_packages / "llama_cpp/lib"
    shutil.copytree(libraries, destination, symlinks=True, dirs_exist_ok=True)
    assert list(destination.glob("libllama.*"))
    return installed


@pytest.fixture(scope="module")
def alone(both: Environment, model: Path) -> dict[str, list[int]]:
    """What each generates without the other in the process."""
    tokens = {}
    for name in NAMES:
        runs = json.loads(both.run("python", PROGRAM, model, name))[name]
        assert all(run == runs[0] for run in runs)
        assert len(set(runs[0])) > 1
        tokens[name] = runs[0]
    return tokens


@pytest.mark.parametrize("order", [NAMES, NAMES[::-1]], ids=" then ".join)
def test_both_generate(
    both: Environment, model: Path, alone: dict[str, list[int]], order: tuple[str, str]
) -> None:
    said = json.loads(both.run("python", "-X", "faulthandler", PROGRAM, model, *order))
    for name in NAMES:
        assert len(said[name]) == 8
        for tokens in said[name]:
            assert tokens == alone[name]
