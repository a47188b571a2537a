"""``pronk info``: what this build is, what it can compute on, and what a model is."""

from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape
from rich.table import Table

import pronk
from pronk import _core
from pronk._cli.console import stdout_console
from pronk._cli.engine import load_engine

if TYPE_CHECKING:
    from pathlib import Path


def show_info(model: Path | None, *, as_json: bool, debug: bool) -> None:
    """Print the facts as tables or as one JSON document.

    Args:
        model: A GGUF file to describe as well.
        as_json: Print JSON.
        debug: Print llama.cpp's log while the model is loaded.
    """
    facts = collect()
    if model is not None:
        facts["model"] = describe(load_engine(model, "0", debug=debug))
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        _print_tables(facts)


def collect() -> dict[str, Any]:
    """Return the facts of the build as JSON-compatible values; memory in bytes."""
    build = _core.build_info()
    return {
        "version": build["version"],
        "llama_cpp_commit": build["llama_cpp_commit"],
        "llama_cpp_tag": build["llama_cpp_tag"],
        "python": platform.python_version(),
        "platform": platform.platform(),
        "compiler": build["compiler"],
        "build_type": build["build_type"],
        "backends": list(build["backends"]),
        "cpu_features": list(build["cpu_features"]),
        "build_flags": dict(build["build_flags"]),
        "devices": [
            {
                "name": device.name,
                "description": device.description,
                "kind": device.kind,
                "memory_total": device.memory_total,
                "memory_free": device.memory_free,
            }
            for device in pronk.devices()
        ],
    }


def describe(engine: pronk.InferenceEngine) -> dict[str, Any]:
    """Return the facts of a model as JSON-compatible values; sizes in bytes."""
    return {
        "path": engine.path,
        "description": engine.description,
        "architecture": engine.architecture,
        "size": engine.size,
        "n_params": engine.n_params,
        "n_vocab": engine.n_vocab,
        "n_ctx_train": engine.n_ctx_train,
        "n_layer": engine.n_layer,
        "memory_kind": engine.memory_kind,
        "has_chat_template": engine.chat_template is not None,
    }


def _print_tables(facts: dict[str, Any]) -> None:
    rows = {
        "pronk": facts["version"],
        "llama.cpp": f"{facts['llama_cpp_tag']} ({facts['llama_cpp_commit']})",
        "Python": f"{facts['python']} on {facts['platform']}",
        "compiler": f"{facts['compiler']}, {facts['build_type']}",
        "back ends": " ".join(facts["backends"]),
        "CPU features": " ".join(facts["cpu_features"]) or "none beyond the baseline",
        **facts["build_flags"],
    }
    console = stdout_console()
    console.print(_key_value_table(rows))
    console.print(_device_table(facts["devices"]))
    if "model" in facts:
        model = facts["model"]
        rows = {
            "model": model["path"],
            "what": model["description"],
            "parameters": f"{model['n_params']:,} in {_mebibytes(model['size'])}",
            "context": f"trained on {model['n_ctx_train']:,} tokens",
            "memory": model["memory_kind"].replace("_", " "),
            "chat template": "yes" if model["has_chat_template"] else "no",
        }
        console.print(_key_value_table(rows))


def _key_value_table(rows: dict[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in rows.items():
        table.add_row(escape(key), escape(str(value)))
    return table


def _device_table(devices: list[dict[str, Any]]) -> Table:
    table = Table(title="Devices", title_justify="left")
    for heading in ("name", "kind", "description"):
        table.add_column(heading)
    for heading in ("memory", "free"):
        table.add_column(heading, justify="right")
    for device in devices:
        table.add_row(
            escape(device["name"]),
            escape(device["kind"]),
            escape(device["description"]),
            _mebibytes(device["memory_total"]),
            _mebibytes(device["memory_free"]),
        )
    return table


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"
