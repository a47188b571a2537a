"""pronk beside llama-cpp-python, which loads another llama.cpp and ggml into the process."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from built.installation import PROJECT, Environment, run

PROGRAM = Path(__file__).resolve().with_name("coexistence.py")
TOOLS = Path(sys.executable).parent
NAMES = ("pronk", "llama_cpp")


# As llama-cpp-python has it: shared libraries under their usual names, with OpenMP where there is
# some. Less optimised, which is what compiling takes its time for.
OPTIONS = {
    "BUILD_SHARED_LIBS": "ON",
    "CMAKE_BUILD_TYPE": "Release",
    "CMAKE_C_FLAGS_RELEASE": "-O1 -DNDEBUG",
    "CMAKE_CXX_FLAGS_RELEASE": "-O1 -DNDEBUG",
    "CMAKE_PROJECT_INCLUDE": PROJECT / "cpp/cmake/launcher.cmake",
    "CMAKE_UNITY_BUILD_RELOCATABLE": "ON",
    "CMAKE_MAKE_PROGRAM": TOOLS / "ninja",
    "GGML_CCACHE": "OFF",
    "GGML_NATIVE": "OFF",
    **{f"LLAMA_BUILD_{part}": "OFF" for part in ("COMMON", "TESTS", "TOOLS", "EXAMPLES", "APP")},
}


@pytest.fixture(scope="module")
def libraries() -> Path:
    """The folder of a shared llama.cpp."""
    tree = PROJECT / "build" / "shared-llama"
    source = PROJECT / "vendor" / "llama.cpp"
    options = [f"-D{name}={value}" for name, value in OPTIONS.items()]
    cmake = TOOLS / "cmake"
    run(cmake, "-S", source, "-B", tree, "-G", "Ninja", *options, cwd=PROJECT)
    run(cmake, "--build", tree, "--target", "llama", cwd=PROJECT)
    return tree / "bin"


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
        assert len(said[name]) == 4
        for tokens in said[name]:
            assert tokens == alone[name]
