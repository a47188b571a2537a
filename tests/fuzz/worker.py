"""The child: tries one mutant after the other, as the driver asks, and says how each ended.

    python -m fuzz.worker KIND SEED

A request is a line of JSON: {"number": 7}, or {"file": "mutant"} for one that was saved. So is the
answer: {"outcome": "accepted"}, {"outcome": "refused", "error": "GrammarError"}, or a finding:
{"outcome": "raised", "error": "LookupError", "detail": "..."}.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import resource
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import pronk
from fuzz import kinds

# Of address space: stacks that are set aside and never touched count here.
ADDRESS_SPACE = 12 << 30
# What one mutant may add to the memory really in use.
MEMORY = 1 << 30


def mutant(kind: kinds.Kind, name: str, seed: int, number: int) -> bytes:
    """Make a mutant: the same for the same kind, seed and number, on every machine."""
    sys.setrecursionlimit(20_000)
    try:
        return kind.make(random.Random(f"{name} {seed} {number}"))
    finally:
        sys.setrecursionlimit(1000)


def peak_memory() -> int:
    """Bytes that were in use at most."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def attempt(kind: kinds.Kind, data: bytes) -> dict[str, Any]:
    before = peak_memory()
    answer: dict[str, Any] = {"outcome": "accepted"}
    try:
        try:
            kind.run(data)
        except pronk.Error as error:
            answer = {"outcome": "refused", "error": type(error).__name__}
        kind.settle()
    except BaseException as error:
        where = "".join(traceback.format_exception(error))[-4000:]
        answer = {"outcome": "raised", "error": type(error).__name__, "detail": where}
    grown = peak_memory() - before
    if grown > MEMORY and answer["outcome"] != "raised":
        answer = {"outcome": "memory", "error": "", "detail": f"{grown >> 20} MiB"}
    return answer


def main() -> None:
    name, seed = sys.argv[1], int(sys.argv[2])
    # What anybody prints goes elsewhere.
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="ascii")
    os.dup2(2, 1)
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if hasattr(resource, "RLIMIT_AS") and not os.environ.get("PRONK_FUZZ_NO_LIMIT"):
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    with tempfile.TemporaryDirectory(prefix="pronk-fuzz-") as scratch:
        kind = kinds.load(name, Path(scratch))
        print(json.dumps({"outcome": "ready"}), file=answers)
        for line in sys.stdin:
            request = json.loads(line)
            if "file" in request:
                data = Path(request["file"]).read_bytes()
            else:
                data = mutant(kind, name, seed, request["number"])
            if "save" in request:
                Path(request["save"]).write_bytes(data)
                print(json.dumps({"outcome": "saved"}), file=answers)
            else:
                print(json.dumps(attempt(kind, data)), file=answers)


if __name__ == "__main__":
    main()
