"""llama-server: llama.cpp's own way to serve several clients, over HTTP on this machine."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.build import PeerError, program
from benchmarks.peers.client import Rules
from benchmarks.settings import Settings

_HOST = "127.0.0.1"
_START_SECONDS = 120.0


@dataclass(frozen=True)
class ServerSetting:
    """How the server is started, and how it is asked."""

    slots: int
    options: tuple[str, ...] = ()
    pinned: bool = False
    """Whether each agent names a slot of its own; else the server picks one by its own rules."""

    def __str__(self) -> str:
        words = ["-np", str(self.slots), *self.options]
        return " ".join(words) + (", a slot named by the client" if self.pinned else "")

    def but(self, *options: str) -> ServerSetting:
        return ServerSetting(self.slots, self.options + options, self.pinned)


class ServerClient:
    """Parses as little as it can: the client's time counts too."""

    def __init__(self, port: int, setting: ServerSetting) -> None:
        self._port = port
        self._setting = setting

    def complete(
        self,
        who: int,
        prompt: Sequence[int],
        n: int,
        on_piece: Callable[[], None],
        rules: Rules | None = None,
    ) -> list[int]:
        body: dict[str, Any] = {
            "prompt": list(prompt),
            "n_predict": n,
            "ignore_eos": rules is None,
            "cache_prompt": True,
            "stream": True,
            # The cheapest way that it has to sample greedily.
            "temperature": 0,
            "samplers": ["top_k"],
            "top_k": 1,
        }
        if rules is not None and rules.grammar is not None:
            body["grammar"] = rules.grammar
        if rules is not None and rules.schema is not None:
            body["json_schema"] = rules.schema
        if self._setting.pinned:
            body["id_slot"] = who % self._setting.slots
        # One connection each: the server ends it after a stream, and a new one is cheap.
        connection = http.client.HTTPConnection(_HOST, self._port)
        try:
            connection.request("POST", "/completion", json.dumps(body))
            return self._read(connection.getresponse(), on_piece)
        finally:
            connection.close()  # which also tells the server of a stream that nobody reads any more

    def _read(self, response: http.client.HTTPResponse, on_piece: Callable[[], None]) -> list[int]:
        if response.status != 200:
            raise PeerError(
                f"llama-server: got {response.status}, expected 200: {response.read()!r}"
            )
        tokens: list[int] = []
        for line in response:
            if not line.startswith(b"data: "):
                continue
            chunk = json.loads(line[6:])
            if chunk.get("tokens"):
                on_piece()
                tokens += chunk["tokens"]
        return tokens


@contextmanager
def open_server(
    settings: Settings, setting: ServerSetting, *, n_ctx: int
) -> Iterator[ServerClient]:
    """Start a server with ``n_ctx`` tokens per slot, yield a client, stop the server."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port = probe.getsockname()[1]
    options: list[object] = ["-m", settings.model_path, "--host", _HOST, "--port", port, "--no-ui"]
    options += ["-t", settings.n_threads, "-tb", settings.n_threads, "-c", setting.slots * n_ctx]
    options += ["-np", setting.slots, *setting.options]
    with tempfile.TemporaryFile("w+") as log:
        command = [str(program(settings, "llama-server")), *map(str, options)]
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait_until_ready(server, port)
            yield ServerClient(port, setting)
        except PeerError as error:
            log.seek(0)
            raise PeerError(f"{error}\nits log ends with: {log.read()[-800:]}") from None
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait_until_ready(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise PeerError(f"llama-server: got exit code {server.returncode}, expected it to run")
        connection = http.client.HTTPConnection(_HOST, port, timeout=5)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.05)
    raise PeerError(
        f"llama-server: got no answer in {_START_SECONDS:.0f} s, expected it to be ready"
    )
