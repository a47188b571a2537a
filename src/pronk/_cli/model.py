"""``pronk model``: the path of the default model."""

from __future__ import annotations

import typer

import pronk


def show_path() -> None:
    """Fetch the default model if need be and print its path, alone, on standard output."""
    typer.echo(pronk.default_model(progress=True))
