#!/usr/bin/env python3
"""Writes tests/cpp/test_abi_layout.cpp: the layout of what other projects compile into themselves.

usage: python tools/abi_layout.py [--check]

--check writes nothing, and exits with 1 where the file lacks something that the headers have, or
has something that they have not. Whether its numbers are right only a compiler can tell: that is
what compiling the file does. Without --check it needs $CXX, or c++, with libstdc++.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
HEADERS = PROJECT / "cpp/include/pronk"
FILE = PROJECT / "tests/cpp/test_abi_layout.cpp"
NOT_FROZEN = {"testing.h"}
LINES = re.MULTILINE  # ^ and $ are those of lines

HEAD = """\
// What other projects compile into themselves: sizes, places of fields, values of enumerators.
// Compiling this file is the test; tools/abi_layout.py writes it. A number that changes is a change
// of the ABI, and asks for another minor version once this one is released: see "Versions" in
// docs/embedding.md.
#include <cstddef>

#include "pronk/pronk.h"

// Sizes are those of 64-bit systems with libstdc++, which the wheels for Linux are built for.
#if defined(__GLIBCXX__) && defined(__LP64__) && _GLIBCXX_USE_CXX11_ABI

#define SIZE(type, bytes) static_assert(sizeof(type) == (bytes), "the size of " #type " changed")
#define FIELD(type, field, bytes) \\
  static_assert(offsetof(type, field) == (bytes), #type "::" #field " moved")
#define VALUE(type, name, number) \\
  static_assert(static_cast<int>(type::name) == (number), #type "::" #name " changed")

// Some structs hold members that are no standard-layout types; every compiler in question knows
// their offsets.
#pragma GCC diagnostic ignored "-Winvalid-offsetof"

namespace pronk {

"""
TAIL = """\
}  // namespace pronk

#endif
"""


@dataclass
class Frozen:
    """What the headers declare, by name."""

    classes: list[str] = field(default_factory=list)
    structs: dict[str, list[str]] = field(default_factory=dict)
    enums: dict[str, list[str]] = field(default_factory=dict)

    def statements(self) -> list[tuple[str, str]]:
        """Each assertion without its number, and the expression for the number."""
        found = []
        for name, fields in self.structs.items():
            found.append((f"SIZE({name}, ", f"sizeof({name})"))
            found += [(f"FIELD({name}, {f}, ", f"offsetof({name}, {f})") for f in fields]
        found += [(f"SIZE({name}, ", f"sizeof({name})") for name in self.classes]
        for name, values in self.enums.items():
            found += [(f"VALUE({name}, {v}, ", f"static_cast<int>({name}::{v})") for v in values]
        return found


def read_headers() -> Frozen:
    frozen = Frozen()
    for path in sorted(HEADERS.glob("*.h")):
        if path.name in NOT_FROZEN:
            continue
        text = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
        for name, body in re.findall(
            r"^enum class (\w+) : int \{(.*?)\};", text, re.MULTILINE | re.DOTALL
        ):
            frozen.enums[name] = re.findall(r"(\w+)\s*(?:=[^,}]*)?(?:,|$)", body.strip())
        frozen.classes += re.findall(r"^class PRONK_API (\w+)", text, LINES)
        for name, body in re.findall(
            r"^struct (?:PRONK_API )?(\w+) \{(.*?)^\};", text, re.MULTILINE | re.DOTALL
        ):
            frozen.structs[name] = fields_of(body)
    return frozen


def fields_of(body: str) -> list[str]:
    # Bodies of functions, then initialisers: what ends in a name is a field.
    body = re.sub(r"\)\s*(?:const)?\s*\{[^}]*\}", ");", body)
    body = re.sub(r"\{[^}]*\}", "", body)
    fields = []
    for statement in body.split(";"):
        if "operator" in statement:
            continue
        declared = [re.sub(r"=.*", "", part, flags=re.DOTALL).strip() for part in commas(statement)]
        for part in declared:
            if part and (found := re.search(r"(?:^|[\s>&*])(\w+)$", part)):
                fields.append(found[1])
            elif part and not part.endswith((")", ") const")):
                raise SystemExit(f"abi_layout: {part!r}: expected a field or a function")
    return fields


def commas(statement: str) -> list[str]:
    """The statement, cut at the commas that no bracket encloses."""
    parts, depth = [""], 0
    for character in statement:
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def measure(expressions: list[str]) -> list[str]:
    prints = "".join(f'  std::printf("%zu\\n", std::size_t({e}));\n' for e in expressions)
    source = f'#include "pronk/pronk.h"\n#include <cstddef>\n#include <cstdio>\n\
using namespace pronk;\nint main() {{\n{prints}}}\n'
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "measure.cpp")
        program.write_text(source, encoding="utf-8")
        compiler = shlex.split(os.environ.get("CXX") or "c++")
        flags = ["-std=c++20", "-w", f"-I{HEADERS.parent}", str(program), "-o", f"{folder}/measure"]
        # Of pronk only types are used; what inline functions would call is not there.
        subprocess.run([*compiler, *flags, "-Wl,--unresolved-symbols=ignore-all"], check=True)
        return subprocess.run(
            [f"{folder}/measure"], check=True, capture_output=True, text=True
        ).stdout.split()


def write(frozen: Frozen) -> None:
    statements = frozen.statements()
    numbers = measure([expression for _, expression in statements])
    lines = [HEAD]
    last = ""
    for (start, _), number in zip(statements, numbers, strict=True):
        name = re.findall(r"\w+", start)[1]
        if last not in ("", name) and not (name in frozen.classes and last in frozen.classes):
            lines.append("\n")
        lines.append(f"{start}{number});\n")
        last = name
    FILE.write_text("".join([*lines, "\n", TAIL]), encoding="utf-8")


def check(frozen: Frozen) -> list[str]:
    there = set(re.findall(r"^((?:SIZE|FIELD|VALUE)\(.*, )\d+\);$", FILE.read_text("utf-8"), LINES))
    wanted = {start for start, _ in frozen.statements()}
    return [f"missing: {start}...)" for start in sorted(wanted - there)] + [
        f"not in the headers: {start}...)" for start in sorted(there - wanted)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare the names")
    arguments = parser.parse_args()
    frozen = read_headers()
    if not arguments.check:
        write(frozen)
        return 0
    problems = check(frozen)
    for problem in problems:
        print(f"{FILE.relative_to(PROJECT)}: {problem}", file=sys.stderr)
    if problems:
        print("run: python tools/abi_layout.py", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
