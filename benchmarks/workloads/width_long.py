"""The same as `width`, where attention to what came before takes a good part of a step."""

from __future__ import annotations

from benchmarks.record import Result
from benchmarks.settings import Settings
from benchmarks.workloads.width import measure

SUMMARY = "decode rate of 1 to 16 permits in longer contexts, against llama-batched-bench"


def run(settings: Settings) -> Result:
    title = "Decode rate by number of permits, longer contexts"
    return measure(settings, Result("width_long", title), n_prompt=96 if settings.quick else 768)
