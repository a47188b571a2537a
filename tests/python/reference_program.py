"""Greedy text from llama.cpp alone, through `tests/cpp/reference_greedy.cpp`.

Rounding depends on how many tokens go through the model at once, and two logits that are nearly
equal can then change places. There are two ways to compare with the reference all the same:

- `exact=True`, and the same two settings in pronk (no flash attention, a KV cache of float32): the
  rounding of the tiny models stays near 1e-5, and whole texts are equal.
- Any other setting: compare `GreedyRun.decided(tolerance)`, the tokens up to the first near-tie.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_ENVIRONMENT = "PRONK_REFERENCE_GREEDY"
_EXACT = ("--flash-attention", "off", "--kv-type", "f32")

Prompt = str | Sequence[int]


class ReferenceFailedError(Exception):
    """The program ended with an error; the message is what it wrote."""


@dataclass(frozen=True)
class GreedyRun:
    """What llama.cpp gives for one prompt."""

    prompt_tokens: list[int]
    tokens: list[int]  # an end-of-generation token, if one came, included
    finish_reason: str  # "stop" or "length"
    raw: bytes  # the text, whose last character may be incomplete
    top: list[list[tuple[int, float]]]  # per step, (token, logit), the best first

    @property
    def text(self) -> str:
        """The text, with U+FFFD for what is not UTF-8."""
        return self.raw.decode(errors="replace")

    def decided(self, tolerance: float) -> list[int]:
        """The tokens before the first step whose two best logits differ by less than `tolerance`.

        Example:
            >>> top = [[(5, 9.0), (7, 8.0)], [(6, 9.0), (7, 8.999)]]
            >>> GreedyRun([1], [5, 6], "length", b"", top).decided(0.01)
            [5]
        """
        for step, best in enumerate(self.top):
            if best[0][1] - best[1][1] < tolerance:
                return self.tokens[:step]
        return self.tokens


class ReferenceProgram:
    """The compiled reference.

    Example:
        >>> reference = ReferenceProgram(find_reference_program())  # doctest: +SKIP
        >>> reference.greedy(path, ["Once upon"], n_predict=8)[0].text  # doctest: +SKIP
    """

    def __init__(self, program: Path) -> None:
        self._program = program

    def greedy(
        self,
        model: Path,
        prompts: Sequence[Prompt],
        *,
        n_predict: int,
        exact: bool = True,
        n_threads: int = 1,
        n_ubatch: int = 512,
        top: int = 2,
        gpu_layers: int = 0,
    ) -> list[GreedyRun]:
        """One run per prompt, each in a fresh context.

        Args:
            prompts: text, tokenized with BOS and special tokens, or token ids, used as they are.
            n_predict: most tokens to generate.
            exact: no flash attention and a float32 KV cache; see the module's text.
            n_ubatch: most prompt tokens in one pass.
            top: how many of the best logits to report per step, at least 2.

        Raises:
            ReferenceFailedError: the model cannot be loaded or generate, or a prompt is invalid.
        """
        flags = ["--top", str(top), "--ubatch", str(n_ubatch), "--gpu-layers", str(gpu_layers)]
        if exact:
            flags += _EXACT
        lines = self._run([str(model), str(n_predict), str(n_threads), *flags], prompts)
        return [
            GreedyRun(
                prompt_tokens=line["prompt_tokens"],
                tokens=line["tokens"],
                finish_reason=line["finish_reason"],
                raw=bytes.fromhex(line["text_hex"]),
                top=[[(token, logit) for token, logit in step] for step in line["top"]],
            )
            for line in lines
        ]

    def tokenize(self, model: Path, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, BOS included; the model may be a vocabulary only."""
        return self._run([str(model), "--tokenize"], texts)

    def info(self, model: Path) -> dict[str, Any]:
        """What llama.cpp says of a model: `is_recurrent`, `is_hybrid`, `n_swa` and so on."""
        properties: dict[str, Any] = self._run([str(model), "--info"], [])[0]
        return properties

    def _run(self, arguments: list[str], prompts: Sequence[Prompt]) -> list[Any]:
        done = subprocess.run(
            [str(self._program), *arguments],
            input="".join(json.dumps(prompt) + "\n" for prompt in prompts),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode != 0:
            raise ReferenceFailedError(f"exit code {done.returncode}: {done.stderr.strip()}")
        return [json.loads(line) for line in done.stdout.splitlines()]


def find_reference_program() -> Path | None:
    """The program that the environment names, or else the newest one in a build directory."""
    named = os.environ.get(_ENVIRONMENT)
    if named:
        path = Path(named)
        if not path.is_file():
            raise FileNotFoundError(f"{_ENVIRONMENT}: got {named!r}, expected a program")
        return path
    built = [
        *_ROOT.glob("build*/tests/cpp/reference_greedy"),
        *_ROOT.glob("build/*/tests/cpp/reference_greedy"),
    ]
    return max(built, key=lambda path: path.stat().st_mtime, default=None)
