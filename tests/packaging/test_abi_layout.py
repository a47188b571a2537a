"""The frozen layout names everything that the public headers declare."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
TOOL = PROJECT / "tools/abi_layout.py"


def check(project: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, project / "tools/abi_layout.py", "--check"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_file_names_all_that_the_headers_have() -> None:
    done = check(PROJECT)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_new_and_what_is_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/abi_layout.py").write_bytes(TOOL.read_bytes())
    headers = tmp_path / "cpp/include/pronk"
    headers.mkdir(parents=True)
    (headers / "thing.h").write_text(
        """
struct Thing {
  std::function<bool(float, int)> call;  ///< a comment; with, signs
  std::string first = "a", second = "b";
  std::map<int, float> third{};
  bool empty() const { return first.empty(); }
  bool operator==(const Thing&) const = default;
};
class PRONK_API Handle {
};
enum class Colour : int { kRed = 0, kBlue };
"""
    )
    layout = tmp_path / "tests/cpp/test_abi_layout.cpp"
    layout.parent.mkdir(parents=True)
    layout.write_text("SIZE(Thing, 8);\nFIELD(Thing, old, 0);\n")
    done = check(tmp_path)
    assert done.returncode == 1
    lines = [line.partition(": ")[2] for line in done.stderr.splitlines()[:-1]]
    fields = ("call", "first", "second", "third")
    assert sorted(lines) == sorted(
        [f"missing: FIELD(Thing, {name}, ...)" for name in fields]
        + ["missing: SIZE(Handle, ...)", "missing: VALUE(Colour, kBlue, ...)"]
        + ["missing: VALUE(Colour, kRed, ...)", "not in the headers: FIELD(Thing, old, ...)"]
    )
