#!/usr/bin/env python3
"""Says at once what a build on this machine would lack, before anything is downloaded.

usage: python tools/preflight.py

Prints one line for each thing that is missing and exits with 1, or prints nothing and exits with 0.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

# Where a distribution splits Python and the compiler up, these are the names of the parts.
APT_HINT = "on Debian or Ubuntu: apt-get install"
XCODE_HINT = "xcode-select --install"

# The compilers that CMake tries, in its order.
C_COMPILERS = ("cc", "gcc", "clang")
CXX_COMPILERS = ("c++", "g++", "clang++")

C_PROBE = "int main(void) { return 0; }\n"
CXX_PROBE = """
#include <concepts>
#include <span>
template <std::integral T> constexpr T twice(T x) { return x + x; }
int main() { return twice(0); }
"""


def hint(packages: str) -> str:
    return XCODE_HINT if sys.platform == "darwin" else f"{APT_HINT} {packages}"


def check_python() -> list[str]:
    problems = []
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if sys.version_info < (3, 10) or platform.python_implementation() != "CPython":
        got = f"{platform.python_implementation()} {version}"
        problems.append(f"Python: got {got}, expected CPython 3.10 or newer, set PYTHON=...")
    # Debian ships venv without the part that puts pip into a new environment.
    if not all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
        problems.append(
            f"Python {version}: got no usable venv module, expected venv with ensurepip, "
            f"{APT_HINT} python{version}-venv"
        )
    if not Path(sysconfig.get_config_var("INCLUDEPY") or "", "Python.h").is_file():
        problems.append(
            f"Python {version}: got no Python.h, expected its C headers, "
            f"{APT_HINT} python{version}-dev"
        )
    return problems


def check_git() -> list[str]:
    if shutil.which("git"):
        return []
    return [f"git: got no such program, expected any recent git, {hint('git')}"]


def check_compiler(variable: str, candidates: tuple[str, ...], arguments: list[str], probe: str,
                   expected: str) -> list[str]:  # fmt: skip
    chosen = shlex.split(os.environ.get(variable, ""))
    command = chosen or [name for name in candidates if shutil.which(name)][:1]
    advice = f"{hint('g++')}, or set {variable}=..."
    if not command:
        return [f"{variable}: got none of {', '.join(candidates)}, expected {expected}, {advice}"]
    try:
        result = subprocess.run(
            [*command, *arguments, "-fsyntax-only", "-"],
            input=probe,
            capture_output=True,
            text=True,
            timeout=60,
        )
        error = (result.stderr.strip() or "no message") if result.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as failure:
        error = str(failure)
    if not error:
        return []
    return [f"{shlex.join(command)}: got {error.splitlines()[0]!r}, expected {expected}, {advice}"]


def main() -> int:
    cxx_arguments = ["-std=c++20", "-x", "c++"]
    problems = [
        *check_python(),
        *check_git(),
        *check_compiler("CC", C_COMPILERS, ["-x", "c"], C_PROBE, "a C compiler"),
        *check_compiler(
            "CXX", CXX_COMPILERS, cxx_arguments, CXX_PROBE, "a C++20 compiler (gcc 11, clang 14)"
        ),
    ]
    for problem in problems:
        print(f"preflight: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
