"""xllamacpp: llama-server's code inside the Python process.

It is asked through its own listener, since its direct calls do not tell which tokens were sampled,
which the next turn of an agent needs.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from benchmarks.peers.llama_server import ServerClient, ServerSetting
from benchmarks.settings import Settings


def missing() -> str | None:
    """Return why it cannot be measured, None where it can."""
    if importlib.util.find_spec("xllamacpp") is None:
        return "not installed: make bench-peers"
    return None


def about() -> str:
    """Return its version, and the features of the CPU that it was built for."""
    package = importlib.import_module("xllamacpp")
    return f"{importlib.metadata.version('xllamacpp')}: {package.get_system_info()}"


@contextmanager
def open_xllamacpp(settings: Settings, *, slots: int, n_ctx: int) -> Iterator[ServerClient]:
    xllamacpp = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(settings.model_path)
    params.n_ctx = slots * n_ctx
    params.n_parallel = slots
    params.cpuparams.n_threads = settings.n_threads
    params.cpuparams_batch.n_threads = settings.n_threads
    params.ui = False
    params.verbosity = -1
    server = xllamacpp.Server(params)
    try:
        port = urlsplit(server.listening_address).port
        assert port is not None
        yield ServerClient(port, ServerSetting(slots))
    finally:
        del server
