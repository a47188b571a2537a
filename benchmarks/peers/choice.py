"""What agents could use instead of pronk: the setting of llama-server, the Python packages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from http.client import HTTPException

from benchmarks.peers import llama_cpp_python, xllamacpp
from benchmarks.peers.build import PeerError
from benchmarks.peers.client import Open
from benchmarks.peers.llama_server import ServerSetting, open_server
from benchmarks.record import Result
from benchmarks.settings import Settings


def best_setting(
    settings: Settings,
    result: Result,
    makespan: Callable[[Open], float],
    *,
    n_ctx: int,
    shapes: Sequence[ServerSetting],
    options: Sequence[tuple[str, ...]],
) -> ServerSetting:
    """Search the server's setting for a workload: a shape of slots and KV, then option by option.

    ``makespan`` runs the workload once. A note of the result says what was tried.
    """
    if settings.quick:
        shapes, options = shapes[:2], ()
    tried: dict[ServerSetting, float] = {}

    def seconds(setting: ServerSetting) -> float:
        if setting not in tried:
            settings.say(f"searching the best llama-server setting: {setting}")
            try:
                tried[setting] = makespan(partial(open_server, settings, setting, n_ctx=n_ctx))
            except (PeerError, OSError, HTTPException) as error:
                settings.say(f"does not work: {error}")
                tried[setting] = float("inf")
        return tried[setting]

    best = min(shapes, key=seconds)
    for option in options:
        best = min(best, best.but(*option), key=seconds)
    lines = [f"{setting}: {time:.1f} s" for setting, time in tried.items()]
    result.notes.append(
        f"Best setting of llama-server: {best}. Tried, one run each: " + "; ".join(lines) + "."
    )
    return best


def packages(settings: Settings, result: Result, *, slots: int, n_ctx: int) -> dict[str, Open]:
    """Return the Python packages that are installed; the result says which are not."""
    found: dict[str, Open] = {}
    for name, module in (("llama-cpp-python", llama_cpp_python), ("xllamacpp", xllamacpp)):
        reason = module.missing()
        if reason is None:
            result.notes.append(f"{name} {module.about()}")
        else:
            result.skipped.append(f"{name}: {reason}")
    if llama_cpp_python.missing() is None:
        found["llama-cpp-python"] = partial(
            llama_cpp_python.open_llama_cpp_python, settings, n_ctx=n_ctx
        )
    if xllamacpp.missing() is None:
        found["xllamacpp"] = partial(xllamacpp.open_xllamacpp, settings, slots=slots, n_ctx=n_ctx)
    return found
