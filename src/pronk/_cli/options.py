"""Options that several commands share."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Layout(str, Enum):
    """How the permits compute."""

    BATCHED = "batched"
    ISOLATED = "isolated"


def _check_gpu_layers(value: str) -> str:
    if value != "auto" and not re.fullmatch(r"-1|[0-9]{1,6}", value):
        raise typer.BadParameter(f"got {value!r}, expected a number from -1 up, or 'auto'")
    return value


ModelOption = Annotated[
    Path | None,
    typer.Option(
        "--model",
        "-m",
        envvar="PRONK_MODEL",
        metavar="PATH",
        help="GGUF file to use. Without it: the default model, fetched on first use.",
        show_default=False,
    ),
]
GpuLayersOption = Annotated[
    str,
    typer.Option(
        "--n-gpu-layers",
        metavar="N|auto",
        callback=_check_gpu_layers,
        help="Layers to place on the GPU; -1 is all, 0 none.",
    ),
]
ContextOption = Annotated[
    int | None,
    typer.Option(
        "--n-ctx",
        min=2,
        metavar="TOKENS",
        help="Context of one permit: prompt and answer together.",
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--n-threads",
        min=1,
        metavar="N",
        help="Most compute threads; without, up to one per CPU, as many as pay.",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output.")
]
DebugOption = Annotated[
    bool,
    typer.Option("--debug", envvar="PRONK_DEBUG", help="Show tracebacks and llama.cpp's log."),
]
