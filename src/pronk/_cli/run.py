"""``pronk run``: one completion, streamed."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import typer

import pronk
from pronk._cli.console import stderr_console
from pronk._cli.engine import load_engine


@dataclass(frozen=True)
class RunOptions:
    """The options of ``pronk run``, as the command line gave them."""

    prompt: str
    model: Path | None
    max_tokens: int
    temperature: float
    seed: int | None
    n_ctx: int | None
    n_gpu_layers: str
    n_threads: int | None
    debug: bool


def stream(options: RunOptions) -> None:
    """Generate and print piece by piece; a line of figures follows if a person is looking."""
    prompt = _read_prompt(options.prompt)
    engine = load_engine(options.model, options.n_gpu_layers, debug=options.debug)
    with pronk.InferenceScheduler(max_concurrent=1) as scheduler:
        scheduler.init_pool(engine, n_ctx=options.n_ctx, n_threads=options.n_threads)
        with scheduler.acquire() as permit:
            generation = permit.generate(
                prompt,
                max_tokens=options.max_tokens,
                temperature=options.temperature,
                seed=options.seed,
            )
            try:
                for piece in generation:
                    sys.stdout.write(piece)
                    sys.stdout.flush()
            except BaseException:
                # The message that follows starts a line. A pipe is left alone: it may be full.
                if sys.stdout.isatty():
                    sys.stdout.write("\n")
                raise
            completion = generation.result()
            if not completion.text.endswith("\n"):
                sys.stdout.write("\n")
    if sys.stdout.isatty() and sys.stderr.isatty():
        stderr_console().print(_figures(completion), style="dim")


def _read_prompt(argument: str) -> str:
    try:
        if argument == "-":
            return sys.stdin.buffer.read().decode("utf-8")
        argument.encode("utf-8")
    except UnicodeError:
        raise typer.BadParameter("prompt: got bytes that are not UTF-8, expected text") from None
    return argument


def _figures(completion: pronk.Completion) -> str:
    usage, decode = completion.usage, completion.timings.decode
    # The first token belongs to the prefill.
    later = usage.completion_tokens - 1
    speed = f", {later / decode:.1f} tokens/s" if later > 0 and decode > 0 else ""
    return (
        f"{usage.prompt_tokens} prompt tokens, {usage.completion_tokens} generated{speed}; "
        f"{completion.finish_reason}"
    )
