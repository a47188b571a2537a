"""A structure-aware fuzzer: nothing that a program hands to pronk may take the process with it.

    make fuzz ARGS="--kind grammar --minutes 10"

A mutant is a model file, a grammar, a schema, a template, a chat, a prompt, an answer of a model or
a call with odd arguments, made from a seed and a number by rules that know what such a thing looks
like. Each is tried in a child process, which may take it or refuse it with a `pronk.Error`. All
else is a finding: a death by signal, another exception, a hang, memory without measure, a
scheduler that is not as good as before.

`kinds` has the rules, `worker` is the child, `driver` the parent, `known` what is a listed limit.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The tiny models and the random schemas belong to the tests in Python.
sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
