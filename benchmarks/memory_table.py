"""The table of docs/memory.md: what pools were foretold to take, and what the kernel then counted.

Each pool is made in a process of its own, on Linux. What becomes dirty is what it takes for itself.

usage: python -m benchmarks.memory_table [--model FILE] [--write]
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pronk
from benchmarks.settings import PROJECT, Settings
from benchmarks.streams import random_tokens

PAGE = PROJECT / "docs" / "memory.md"
BEGIN, END = "<!-- made by python -m benchmarks.memory_table --write -->", "<!-- until here -->"
PERMITS, N_CTX, PROMPT = 3, 2048, 600
ROWS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("as by default ({kv}, {sequences} sequences)", {}),
    ('with `kv="shared"`', {"kv": "shared"}),
    ('with `layout="isolated"`', {"layout": "isolated"}),
    ("with q8_0 for keys and values", {"type_k": "q8_0", "type_v": "q8_0"}),
)
COLUMNS = (
    "kv",
    "compute",
    "other",
    "pool",
    "dirty when made",
    "dirty after work",
    "address space taken",
)


def measure(model: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Make a pool in this process, let it work. Returns bytes by column, and what it was."""
    engine = pronk.InferenceEngine.load(model)
    options = {"n_threads": 1, **options}
    estimate = engine.estimate_memory(N_CTX, PERMITS, **options)
    foretold = _cpu(estimate.devices)
    dirty_before, space_before = _dirty(), _address_space()
    with pronk.InferenceScheduler(PERMITS) as scheduler:
        scheduler.init_pool(engine, n_ctx=N_CTX, **options)
        dirty_made, space_made = _dirty(), _address_space()
        real = _cpu(scheduler.memory())
        draw = random_tokens("memory", engine.n_vocab)
        for generation in [
            scheduler.generate(draw(PROMPT), max_tokens=8, ignore_eos=True) for _ in range(PERMITS)
        ]:
            generation.result()
        dirty_worked = _dirty()
    return {
        "kv": foretold.kv,
        "compute": foretold.compute,
        "other": foretold.other,
        "pool": foretold.pool,
        "dirty when made": dirty_made - dirty_before,
        "dirty after work": dirty_worked - dirty_before,
        "address space taken": space_made - space_before,
        "was": {"kv": real.kv, "compute": real.compute, "other": real.other, "pool": real.pool},
        "layout": estimate.kv,
        "sequences": estimate.max_concurrent + estimate.n_cached,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return what stands on the page."""
    exact = all(row["was"] == {key: row[key] for key in row["was"]} for row in rows)
    said = "was equal to the estimate in each row" if exact else "differed from the estimate"
    date = datetime.now(timezone.utc).date().isoformat()
    system = f"{platform.system()} {platform.machine()}"
    lines = [
        f"The default model with {PERMITS} permits, `n_ctx={N_CTX}` and `n_threads=1`, the rest as "
        f"by default, on {system}, {date}, in MB;",
        f"`scheduler.memory()` {said}:",
        "",
        "| options | " + " | ".join(f"`{c}`" if " " not in c else c for c in COLUMNS) + " |",
        "|---|" + "--:|" * len(COLUMNS),
    ]
    for (name, _), row in zip(ROWS, rows, strict=True):
        cells = [f"{row[column] / 1e6:.1f}" for column in COLUMNS]
        words = name.format(kv=row["layout"], sequences=row["sequences"])
        lines.append("| " + " | ".join([words, *cells]) + " |")
    lines += [
        "",
        f"The work was {PERMITS} prompts of {PROMPT} tokens: buffers and tables become dirty as "
        "far as they are used.",
    ]
    return "\n".join(lines)


def _cpu(devices: Sequence[pronk.DeviceMemory]) -> pronk.DeviceMemory:
    return next(device for device in devices if device.device == "CPU")


def _dirty() -> int:
    text = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8")
    return 1024 * sum(int(n) for n in re.findall(r"^Private_Dirty:\s+(\d+)", text, re.MULTILINE))


def _address_space() -> int:
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    found = re.search(r"^VmSize:\s+(\d+)", text, re.MULTILINE)
    assert found is not None
    return 1024 * int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="a GGUF file; pronk's default model")
    parser.add_argument("--write", action="store_true", help="put the table into docs/memory.md")
    parser.add_argument("--row", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    model = Settings(model=options.model).model_path
    if options.row is not None:
        print(json.dumps(measure(model, ROWS[options.row][1])))
        return
    rows = []
    for index in range(len(ROWS)):
        command = [sys.executable, "-m", "benchmarks.memory_table"]
        command += ["--model", str(model), "--row", str(index)]
        done = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(done.stdout))
    text = table(rows)
    print(text)
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN + "\n")
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
