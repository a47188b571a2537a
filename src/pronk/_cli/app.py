"""The table of commands and their options."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from pronk._cli.options import (
    ContextOption,
    DebugOption,
    GpuLayersOption,
    JsonOption,
    Layout,
    ModelOption,
    ThreadsOption,
)
from pronk._cli.outcome import FAILED, reporting

app = typer.Typer(
    name="pronk",
    help="Run many agents over one local model.",
    epilog="First steps: `pronk demo`, then `pronk run 'Once upon a time'`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        import pronk

        typer.echo(f"pronk {pronk.__version__}")
        raise typer.Exit


def _print_include_dir(wanted: bool) -> None:
    if wanted:
        from pronk._cli.directories import include_dir

        typer.echo(include_dir())
        raise typer.Exit


def _print_cmake_dir(wanted: bool) -> None:
    if wanted:
        from pronk._cli.directories import cmake_dir

        typer.echo(cmake_dir())
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    include_dir: Annotated[
        bool,
        typer.Option(
            "--include-dir",
            callback=_print_include_dir,
            is_eager=True,
            help="Print where pronk's C++ headers are and exit.",
        ),
    ] = False,
    cmake_dir: Annotated[
        bool,
        typer.Option(
            "--cmake-dir",
            callback=_print_cmake_dir,
            is_eager=True,
            help="Print where pronk's CMake package is and exit.",
        ),
    ] = False,
) -> None:
    """Run many agents over one local model."""


@app.command()
def info(
    model: Annotated[
        Path | None,
        typer.Option("--model", "-m", metavar="PATH", help="Describe this GGUF file too."),
    ] = None,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show the version, the devices, and how this build was made.

    The first thing to look at when a GPU is not used, and to attach to a bug report.
    """
    with reporting(debug):
        from pronk._cli.info import show_info

        show_info(model, as_json=json, debug=debug)


@app.command()
def model(debug: DebugOption = False) -> None:
    """Fetch the default model and print its path.

    SmolLM2-135M-Instruct, 98 MB. It is downloaded once, checked, and kept in your cache directory
    (PRONK_CACHE_DIR overrides it). Only the path goes to standard output:

    `llama-cli -m "$(pronk model)"`
    """
    with reporting(debug):
        from pronk._cli.model import show_path

        show_path()


@app.command()
def run(
    prompt: Annotated[
        str, typer.Argument(help="Text to continue; '-' reads it from standard input.")
    ],
    model: ModelOption = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "-n", min=0, help="Most tokens to generate.")
    ] = 128,
    temperature: Annotated[
        float,
        typer.Option("--temperature", "-t", min=0.0, max=100.0, help="0 takes the likeliest."),
    ] = 0.8,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            min=0,
            max=2**32 - 1,
            help="Repeat an answer; random without.",
        ),
    ] = None,
    n_ctx: ContextOption = None,
    n_gpu_layers: GpuLayersOption = "auto",
    n_threads: ThreadsOption = None,
    debug: DebugOption = False,
) -> None:
    """Continue a text, printing it as it comes."""
    with reporting(debug):
        from pronk._cli.run import RunOptions, stream

        stream(
            RunOptions(
                prompt=prompt,
                model=model,
                max_tokens=max_tokens,
                temperature=temperature,
                seed=seed,
                n_ctx=n_ctx,
                n_gpu_layers=n_gpu_layers,
                n_threads=n_threads,
                debug=debug,
            )
        )


@app.command()
def demo(
    agents: Annotated[int, typer.Option(min=1, max=256, help="Agents, each on its thread.")] = 8,
    turns: Annotated[int, typer.Option(min=1, max=1000, help="Model calls of each agent.")] = 3,
    max_concurrent: Annotated[
        int, typer.Option(min=1, max=256, help="Permits: agents that may compute at once.")
    ] = 2,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "-n", min=1, help="Most tokens of one answer.")
    ] = 48,
    tool_time: Annotated[
        float,
        typer.Option(
            min=0.0, max=60.0, metavar="SECONDS", help="Pause between turns, without a permit."
        ),
    ] = 0.3,
    temperature: Annotated[
        float,
        typer.Option("--temperature", "-t", min=0.0, max=100.0, help="0 takes the likeliest."),
    ] = 0.7,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of the sampling.")] = 1,
    model: ModelOption = None,
    layout: Annotated[
        Layout | None, typer.Option(help="How permits compute; the library's choice without.")
    ] = None,
    n_ctx: ContextOption = 1024,
    n_gpu_layers: GpuLayersOption = "auto",
    n_threads: ThreadsOption = None,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Watch many agents share one model.

    Each agent holds a short conversation with the model. For a call it takes a permit; between
    calls it pretends to use a tool, without one. At most `--max-concurrent` agents compute at a
    time, the others wait in order. The summary at the end is checked: exit code 0 means that every
    agent finished and that the figures add up.
    """
    with reporting(debug):
        from pronk._cli.demo import DemoOptions, run_demo

        sound = run_demo(
            DemoOptions(
                agents=agents,
                turns=turns,
                max_concurrent=max_concurrent,
                max_tokens=max_tokens,
                tool_time=tool_time,
                temperature=temperature,
                seed=seed,
                model=model,
                layout=layout.value if layout else None,
                n_ctx=n_ctx,
                n_gpu_layers=n_gpu_layers,
                n_threads=n_threads,
                as_json=json,
                debug=debug,
            )
        )
        if not sound:
            raise typer.Exit(FAILED)


def main() -> None:
    """Run the command line and exit the process."""
    for stream in (sys.stdout, sys.stderr):
        # A model may write any character, whatever the terminal can show.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app(prog_name="pronk")
