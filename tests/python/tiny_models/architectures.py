"""What each kind of tiny model is made of: the metadata and tensors that llama.cpp asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tiny_models.kinds import SLIDING_WINDOW, Kind
from tiny_models.vocabulary import Vocabulary
from tiny_models.weights import Tensor, Weights

Metadata: TypeAlias = "dict[str, bool | int | float | list[int]]"
Tensors: TypeAlias = dict[str, Tensor]

_EMBEDDING = 64
# A multiple of 32, so that a quantised KV cache works, and a size that GPU kernels have.
_HEAD = 64
_FEED_FORWARD = 96
_CONTEXT = 8192
_EPSILON = 1e-5

# The recurrent layers' sizes are the ones that GPU kernels have, too.
_INNER = 2 * _EMBEDDING
_STATE = 16
_STEP_RANK = 4
_CONVOLUTION = 4


@dataclass
class Architecture:
    """One model, ready to be written. Metadata keys come without the architecture's name."""

    name: str
    metadata: Metadata = field(default_factory=dict)
    tensors: Tensors = field(default_factory=dict)


def _ones(size: int) -> Tensor:
    return np.ones(size, dtype=np.float32)


def _common(layers: int, **heads: int | list[int]) -> Metadata:
    return {
        "context_length": _CONTEXT,
        "embedding_length": _EMBEDDING,
        "block_count": layers,
        "feed_forward_length": _FEED_FORWARD,
        "attention.layer_norm_rms_epsilon": _EPSILON,
        **{f"attention.{name}": value for name, value in heads.items()},
    }


def _rope() -> Metadata:
    return {
        "rope.dimension_count": _HEAD,
        "rope.freq_base": 10000.0,
        "attention.key_length": _HEAD,
        "attention.value_length": _HEAD,
    }


def _ends(weights: Weights, vocabulary: Vocabulary, scale: float = 1.0) -> Tensors:
    return {
        "token_embd.weight": weights.embedding(vocabulary, _EMBEDDING, scale),
        "output_norm.weight": _ones(_EMBEDDING),
        "output.weight": weights.head(vocabulary, _EMBEDDING),
    }


def _attention(weights: Weights, layer: int, heads: int, sharpness: float = 2.0) -> Tensors:
    """`sharpness` decides how much one position stands out: at 0 attention is a plain mean."""
    block = f"blk.{layer}"
    shapes = {
        f"{block}.attn_q.weight": (heads * _HEAD, sharpness),
        f"{block}.attn_k.weight": (_HEAD, 1.0),
        f"{block}.attn_v.weight": (_HEAD, 1.5),
    }
    output = f"{block}.attn_output.weight"
    return {
        f"{block}.attn_norm.weight": _ones(_EMBEDDING),
        **{name: weights.matrix(name, n, _EMBEDDING, gain) for name, (n, gain) in shapes.items()},
        output: weights.into_residual(output, _EMBEDDING, heads * _HEAD, 1.5),
    }


def _feed_forward(weights: Weights, layer: int) -> Tensors:
    block = f"blk.{layer}"
    gate, up, down = (f"{block}.ffn_{part}.weight" for part in ("gate", "up", "down"))
    return {
        f"{block}.ffn_norm.weight": _ones(_EMBEDDING),
        gate: weights.matrix(gate, _FEED_FORWARD, _EMBEDDING, 1.5),
        up: weights.matrix(up, _FEED_FORWARD, _EMBEDDING, 1.5),
        down: weights.into_residual(down, _EMBEDDING, _FEED_FORWARD, 1.0),
    }


def _state_space(weights: Weights, layer: int) -> Tensors:
    """A Mamba layer, whose slowest state remembers about a hundred tokens."""
    block = f"blk.{layer}"

    def linear(part: str, outputs: int, inputs: int, gain: float) -> Tensors:
        name = f"{block}.ssm_{part}.weight"
        return {name: weights.matrix(name, outputs, inputs, gain)}

    output = f"{block}.ssm_out.weight"
    decay = np.linspace(0.05, 2.0, _STATE, dtype=np.float32)
    return {
        f"{block}.attn_norm.weight": _ones(_EMBEDDING),
        **linear("in", 2 * _INNER, _EMBEDDING, 1.5),
        **linear("conv1d", _INNER, _CONVOLUTION, 1.5),
        f"{block}.ssm_conv1d.bias": np.zeros(_INNER, dtype=np.float32),
        **linear("x", _STEP_RANK + 2 * _STATE, _INNER, 0.5),
        **linear("dt", _INNER, _STEP_RANK, 0.5),
        # The softplus of this bias, 0.2, is the step; times `decay` it is what a token fades.
        f"{block}.ssm_dt.bias": np.full(_INNER, -1.5, dtype=np.float32),
        f"{block}.ssm_a": np.tile(-decay, (_INNER, 1)),
        f"{block}.ssm_d": _ones(_INNER),
        output: weights.into_residual(output, _EMBEDDING, _INNER, 0.5),
    }


def _state_space_metadata() -> Metadata:
    return {
        "ssm.conv_kernel": _CONVOLUTION,
        "ssm.inner_size": _INNER,
        "ssm.state_size": _STATE,
        "ssm.time_step_rank": _STEP_RANK,
    }


def _plain(weights: Weights, vocabulary: Vocabulary) -> Architecture:
    tensors = _ends(weights, vocabulary)
    for layer in range(2):
        tensors |= _attention(weights, layer, heads=2) | _feed_forward(weights, layer)
    return Architecture("llama", _common(2, head_count=2, head_count_kv=1) | _rope(), tensors)


def _stops(weights: Weights, vocabulary: Vocabulary) -> Architecture:
    model = _plain(weights, vocabulary)
    model.tensors["output.weight"] = weights.stopping_head(vocabulary, _EMBEDDING)
    return model


def _raw_bytes(weights: Weights, vocabulary: Vocabulary) -> Architecture:
    model = _plain(weights, vocabulary)
    model.tensors["output.weight"] = weights.unguided_head(vocabulary, _EMBEDDING)
    return model


def _swa(weights: Weights, vocabulary: Vocabulary) -> Architecture:
    # This architecture multiplies its embeddings by the root of their size.
    tensors = _ends(weights, vocabulary, scale=_EMBEDDING**-0.5)
    for layer in range(2):
        tensors |= _attention(weights, layer, heads=2) | _feed_forward(weights, layer)
        tensors |= {
            f"blk.{layer}.attn_q_norm.weight": 2 * _ones(_HEAD),
            f"blk.{layer}.attn_k_norm.weight": _ones(_HEAD),
            f"blk.{layer}.post_attention_norm.weight": _ones(_EMBEDDING),
            f"blk.{layer}.post_ffw_norm.weight": _ones(_EMBEDDING),
        }
    metadata = _common(2, head_count=2, head_count_kv=1) | _rope()
    metadata |= {
        "attention.sliding_window": SLIDING_WINDOW,
        "attention.sliding_window_pattern": 2,  # every second layer sees everything
    }
    return Architecture("gemma3", metadata, tensors)


def _recurrent(weights: Weights, vocabulary: Vocabulary) -> Architecture:
    tensors = _ends(weights, vocabulary)
    for layer in range(2):
        tensors |= _state_space(weights, layer)
    return Architecture("mamba", _common(2, head_count=0) | _state_space_metadata(), tensors)


def _hybrid(weights: Weights, vocabulary: Vocabulary) -> Architecture:
    tensors = _ends(weights, vocabulary)
    tensors |= _state_space(weights, 0) | _attention(weights, 1, heads=1)
    tensors |= {
        "blk.0.ssm_dt_norm.weight": _ones(_STEP_RANK),
        "blk.0.ssm_b_norm.weight": _ones(_STATE),
        "blk.0.ssm_c_norm.weight": _ones(_STATE),
    }
    for layer in range(2):
        tensors |= _feed_forward(weights, layer)
    metadata = _common(2, head_count=1, head_count_kv=[0, 1]) | _state_space_metadata()
    return Architecture("jamba", metadata, tensors)


def _rollback(weights: Weights, vocabulary: Vocabulary) -> Architecture:
    tensors = _ends(weights, vocabulary)
    # This architecture's files call the norm before the head by another name.
    tensors["token_embd_norm.weight"] = tensors.pop("output_norm.weight")
    convolution, into, out = (
        f"blk.0.shortconv.{part}.weight" for part in ("conv", "in_proj", "out_proj")
    )
    tensors |= {
        "blk.0.attn_norm.weight": _ones(_EMBEDDING),
        convolution: weights.matrix(convolution, _EMBEDDING, _CONVOLUTION, 1.5),
        into: weights.matrix(into, 3 * _EMBEDDING, _EMBEDDING, 1.2),
        out: weights.into_residual(out, _EMBEDDING, _EMBEDDING, 1.0),
        "blk.1.attn_q_norm.weight": 2 * _ones(_HEAD),
        "blk.1.attn_k_norm.weight": _ones(_HEAD),
    }
    tensors |= _attention(weights, 1, heads=1)
    for layer in range(2):
        tensors |= _feed_forward(weights, layer)
    metadata = _common(2, head_count=1, head_count_kv=[0, 1]) | _rope()
    return Architecture("lfm2", metadata | {"shortconv.l_cache": _CONVOLUTION}, tensors)


def _encoder(weights: Weights, vocabulary: Vocabulary) -> Architecture:
    positions, block = 512, "blk.0"
    tensors = {
        "token_embd.weight": weights.embedding(vocabulary, _EMBEDDING),
        "position_embd.weight": weights.uniform("position_embd", (positions, _EMBEDDING), 0.5),
        **_attention(weights, 0, heads=1),
    }
    del tensors[f"{block}.attn_norm.weight"]
    for name in ("token_embd_norm", f"{block}.attn_output_norm", f"{block}.layer_output_norm"):
        tensors[f"{name}.weight"] = _ones(_EMBEDDING)
        tensors[f"{name}.bias"] = np.zeros(_EMBEDDING, dtype=np.float32)
    up, down = f"{block}.ffn_up.weight", f"{block}.ffn_down.weight"
    tensors[up] = weights.matrix(up, _FEED_FORWARD, _EMBEDDING)
    tensors[down] = weights.matrix(down, _EMBEDDING, _FEED_FORWARD)
    mean_pooling = 1
    metadata = _common(1, head_count=1) | {
        "context_length": positions,
        "attention.layer_norm_epsilon": _EPSILON,
        "attention.causal": False,
        "pooling_type": mean_pooling,
    }
    return Architecture("bert", metadata, tensors)


def _vocabulary(weights: Weights, vocabulary: Vocabulary) -> Architecture:
    del weights, vocabulary  # it has none of the first, and the writer adds the second
    return Architecture("llama", _common(2, head_count=2, head_count_kv=1) | _rope())


BUILDERS: dict[Kind, Callable[[Weights, Vocabulary], Architecture]] = {
    "plain": _plain,
    "swa": _swa,
    "recurrent": _recurrent,
    "hybrid": _hybrid,
    "rollback": _rollback,
    "stops": _stops,
    "raw_bytes": _raw_bytes,
    "encoder": _encoder,
    "vocabulary": _vocabulary,
}
