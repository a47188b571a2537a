"""llama-batched-bench: llama.cpp's own measure of how fast a batch of sequences decodes."""

from __future__ import annotations

import json
import subprocess

from benchmarks.peers.build import PeerError, program
from benchmarks.settings import Settings

_CELLS = 256  # llama.cpp rounds the context of a sequence up to a multiple


def decode_rate(
    settings: Settings,
    *,
    width: int,
    n_prompt: int,
    n_decode: int,
    unified: bool,
    flash_attention: str,
) -> float:
    """Return tokens per second (its S_TG): width x n_decode tokens over the time of the decodes.

    It evaluates ``width`` separate prompts of ``n_prompt`` random tokens, then decodes ``n_decode``
    random tokens in each sequence. It computes the logits, but samples nothing.
    """
    per_sequence = -(-(n_prompt + n_decode) // _CELLS) * _CELLS
    options: list[object] = ["-m", settings.model_path, "-c", width * per_sequence]
    options += ["-npp", n_prompt, "-ntg", n_decode, "-npl", width]
    options += ["-t", settings.n_threads, "-tb", settings.n_threads, "-fa", flash_attention]
    options += ["-kvu" if unified else "-no-kvu", "--output-format", "jsonl"]
    options += [
        "-ctk",
        settings.pool.get("type_k", "f16"),
        "-ctv",
        settings.pool.get("type_v", "f16"),
    ]
    command = [str(program(settings, "llama-batched-bench")), *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or len(rows) != 1:
        raise PeerError(
            f"llama-batched-bench: got exit code {done.returncode} and {len(rows)} rows, "
            f"expected 0 and 1, its last words: {done.stderr[-500:]}"
        )
    return float(json.loads(rows[0])["speed_tg"])
