"""What a token costs at the least: bytes that have to be read, operations that have to be done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pronk

_CELLS = 256
"""llama.cpp reads the cells of a KV cache in multiples of so many."""


@dataclass(frozen=True)
class ModelCost:
    """Of a dense model with plain attention. Norms, biases and the like are left out."""

    weight_bytes: int
    """Of the matrices that every step reads."""
    body: int
    """Elements of the matrices that every token is multiplied with."""
    head: int
    """Elements of the matrix that makes logits, for tokens that have some."""
    cell_bytes: int
    """Of the keys and values of one token, in all layers."""
    attention: int
    """Operations of a token for each cell that it attends to, in all layers."""

    def cells(self, kv: str, width: int, context: int) -> int:
        """Cells that a step of ``width`` generations goes through, each with ``context`` tokens."""
        if kv == "shared":  # each token goes through those of all
            return _up(width * context)
        return width * _up(context)

    def bytes(self, kv: str, width: int, context: int) -> int:
        """Bytes that a step reads: weights, keys and values."""
        return self.weight_bytes + self.cells(kv, width, context) * self.cell_bytes

    def operations(self, kv: str, width: int, context: int) -> int:
        """Multiplications and additions of a step."""
        cells = self.cells(kv, width, context) * (width if kv == "shared" else 1)
        return 2 * width * (self.body + self.head) + cells * self.attention

    def prefill_operations(self, n: int) -> int:
        """Those of the first ``n`` tokens of a prompt, of which the last has logits."""
        return 2 * (n * self.body + self.head) + n * _up(n) * self.attention


def model_cost(engine: pronk.InferenceEngine, path: Path, types: dict[str, Any]) -> ModelCost:
    """Read it from the model file, and from what a KV cache of the types would take."""
    import gguf

    weight_bytes = body = head = 0
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    for name, tensor in tensors.items():
        if len(tensor.shape) < 2 or name == "token_embd.weight":
            continue  # a vector; or a table of which a token reads a row
        weight_bytes += int(tensor.n_bytes)
        if name == "output.weight":
            head = int(tensor.n_elements)
        else:
            body += int(tensor.n_elements)
    if head == 0:  # the table of the tokens serves for the logits too
        weight_bytes += int(tensors["token_embd.weight"].n_bytes)
        head = int(tensors["token_embd.weight"].n_elements)
    n_ctx = 1024
    devices = engine.estimate_memory(n_ctx, 1, kv="split", n_cached=0, **types).devices
    cell_bytes = sum(device.kv for device in devices) // n_ctx
    attention = 4 * engine.n_layer * engine.n_embd
    return ModelCost(weight_bytes, body, head, cell_bytes, attention)


def _up(n: int) -> int:
    return -(-n // _CELLS) * _CELLS
