"""How fast permits decode together, against the limit: llama.cpp's loop, no scheduler."""

from __future__ import annotations

import logging
import re
import time
from functools import partial

import pronk
from benchmarks.record import Case, Metric, Result, Sample, at_least
from benchmarks.runner import Run, alternate
from benchmarks.settings import Settings
from benchmarks.streams import random_tokens

SUMMARY = "decode rate of 1 to 16 permits in short contexts, against llama-batched-bench"

RATE = Metric("rate", "decode rate", "tokens/s", "higher")
NOTES = [
    "Ours: each permit's prompt is evaluated before (a completion of one token leaves it in the "
    "cache), then all permits generate at once, greedily, sampling and text included. The rate is "
    "permits x (tokens - 1) over the time from the earliest first token to the latest last token, "
    "by the core's own clock: the ramps, in which not all permits decode, count against us.",
    "llama-batched-bench: its S_TG, permits x tokens over the time of its decodes. It computes the "
    "same logits and samples nothing. Same commit, compiler, threads, model and flash attention.",
]


def run(settings: Settings) -> Result:
    return measure(settings, Result("width", "Decode rate by number of permits"), n_prompt=64)


def measure(settings: Settings, result: Result, n_prompt: int) -> Result:
    """Add the cases of all widths, after prompts of so many tokens."""
    widths = (1, 2) if settings.quick else (1, 2, 4, 8, 16)
    n_decode = 16 if settings.quick else 192
    result.notes = list(NOTES)
    if not settings.peers:
        result.skipped.append("llama-batched-bench: run with --no-peers")
    for width in widths:
        result.cases.append(_case(settings, width, n_prompt, n_decode))
    return result


def _case(settings: Settings, width: int, n_prompt: int, n_decode: int) -> Case:
    flash = _flash_attention(settings, width, n_prompt + n_decode + 1)
    sides: dict[str, Run] = {"pronk": partial(_ours, settings, width, n_prompt, n_decode)}
    if settings.peers:
        for name, unified in (("split", False), ("-kvu", True)):
            sides[f"llama-batched-bench {name}"] = partial(
                _theirs, settings, width, n_prompt, n_decode, unified, flash
            )
    name = f"{width} permit{'s' * (width > 1)}, {n_prompt} tokens of context"
    parameters = {
        "permits": width,
        "prompt": n_prompt,
        "decoded": n_decode,
        "flash_attention": flash,
    }
    case = Case(name, [RATE], alternate(settings, name, sides), parameters)
    for side in list(sides)[1:]:
        case.compare(side, "rate", at_least(0.97))
    return case


def _pool(settings: Settings, width: int, n_ctx: int) -> pronk.InferenceScheduler:
    scheduler = pronk.InferenceScheduler(width)
    scheduler.init_pool(settings.engine, n_ctx=n_ctx, **settings.pool)
    return scheduler


def _ours(settings: Settings, width: int, n_prompt: int, n_decode: int) -> Sample:
    draw = random_tokens(("width", width, n_prompt), settings.engine.n_vocab)
    prompts = [draw(n_prompt) for _ in range(width)]
    with _pool(settings, width, n_prompt + n_decode + 1) as scheduler:
        for generation in [
            scheduler.generate(prompt, max_tokens=1, temperature=0, ignore_eos=True)
            for prompt in prompts
        ]:
            generation.result()
        # All permits are held first, so that the generations start together.
        permits = [scheduler.acquire() for _ in range(width)]
        running = []
        for permit, prompt in zip(permits, prompts, strict=True):
            asked = time.perf_counter()
            generation = permit.generate(
                prompt, max_tokens=n_decode, temperature=0, ignore_eos=True
            )
            running.append((asked, generation))
        first, last, decoded = float("inf"), 0.0, 0
        for asked, generation in running:
            done = generation.result()
            begin = asked + done.timings.first_token
            first, last = min(first, begin), max(last, begin + done.timings.decode)
            decoded += done.usage.completion_tokens - 1
        return {"rate": decoded / (last - first)}


def _theirs(
    settings: Settings, width: int, n_prompt: int, n_decode: int, unified: bool, flash: str
) -> Sample:
    from benchmarks.peers.batched_bench import decode_rate

    rate = decode_rate(
        settings,
        width=width,
        n_prompt=n_prompt,
        n_decode=n_decode,
        unified=unified,
        flash_attention=flash,
    )
    return {"rate": rate}


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += record.getMessage() + "\n"


def _flash_attention(settings: Settings, width: int, n_ctx: int) -> str:
    """What pronk chooses here: read from llama.cpp's log, since "auto" is settled below us."""
    logger, lines = logging.getLogger("pronk.llama"), _Lines()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(lines)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        with _pool(settings, width, n_ctx):
            pass
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)
        logger.propagate = propagate
    found = re.search(r"flash_attn\s*=\s*(\w+)", lines.text)
    words = {"enabled": "on", "disabled": "off", "1": "on", "0": "off"}
    return words.get(found[1], "auto") if found else "auto"
