"""Loading the model that a command was asked to use."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pronk


def load_engine(model: Path | None, n_gpu_layers: str, *, debug: bool) -> pronk.InferenceEngine:
    """Load ``model``, or the default model, with progress on standard error.

    Args:
        model: A GGUF file; ``None`` for the default model.
        n_gpu_layers: Layers on the GPU, a number in digits or ``"auto"``.
        debug: Also print llama.cpp's log on standard error.
    """
    if debug:
        logging.basicConfig(stream=sys.stderr)
        logging.getLogger("pronk").setLevel(logging.DEBUG)
    return pronk.InferenceEngine.load(
        model if model is not None else pronk.default_model(progress=True),
        n_gpu_layers="auto" if n_gpu_layers == "auto" else int(n_gpu_layers),
        progress=True,
    )
