"""Random weights that make a tiny model behave like a model, not like noise.

Values come from the raw stream of a Mersenne Twister, scaled by one multiplication: no library
function whose last bit may differ between machines is involved, so the bytes are reproducible.
"""

from __future__ import annotations

import zlib
from typing import TypeAlias

import numpy as np
from gguf import TokenType
from numpy.typing import NDArray

from tiny_models.vocabulary import EOT, Vocabulary

Tensor: TypeAlias = NDArray[np.float32]

# The embedding dimension that says "the last token left a character open". No layer writes to it,
# so it reaches the output head, which then allows continuation bytes only.
_OPEN_CHARACTER = 0
_GUIDE_INPUT = 2.0
_GUIDE_OUTPUT = 40.0

# Standard deviation of the logits. The leading one then has a margin far above rounding errors,
# and sampling at temperature 1 still chooses among many tokens.
_LOGIT_SPREAD = 3.0
# Makes the end-of-turn token of kind "stops" win one step out of a few dozen.
_STOP_SPREAD = 6.0


class Weights:
    """Makes named tensors; each depends on the seed and its own name only.

    Matrices have llama.cpp's orientation as numpy shows it: (outputs, inputs).
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def uniform(self, name: str, shape: tuple[int, ...], deviation: float) -> Tensor:
        """Zero mean and the given standard deviation."""
        generator = np.random.RandomState([self._seed, zlib.crc32(name.encode())])
        values = generator.random_sample(shape) * 2.0 - 1.0
        return np.asarray(values * (deviation * 3**0.5), dtype=np.float32)

    def matrix(self, name: str, outputs: int, inputs: int, gain: float = 1.0) -> Tensor:
        """A linear layer: inputs of unit variance give outputs of deviation `gain`."""
        return self.uniform(name, (outputs, inputs), gain / inputs**0.5)

    def into_residual(self, name: str, outputs: int, inputs: int, gain: float = 1.0) -> Tensor:
        """A linear layer whose result is added to the residual stream."""
        result = self.matrix(name, outputs, inputs, gain)
        result[_OPEN_CHARACTER] = 0.0
        return result

    def embedding(self, vocabulary: Vocabulary, size: int, scale: float = 1.0) -> Tensor:
        """Token vectors of unit variance times `scale`."""
        result = self.uniform("token_embd", (len(vocabulary), size), scale)
        opens = np.array([_opens_character(raw) for raw in vocabulary.raw])
        result[:, _OPEN_CHARACTER] = np.where(opens, _GUIDE_INPUT, -_GUIDE_INPUT) * scale
        return result

    def head(self, vocabulary: Vocabulary, size: int) -> Tensor:
        """The output matrix: text that is valid UTF-8, and never a special token."""
        result = self.matrix("output", len(vocabulary), size, _LOGIT_SPREAD)
        guide = [_guide(raw) for raw in vocabulary.raw]
        result[:, _OPEN_CHARACTER] = np.array(guide) * _GUIDE_OUTPUT
        silent = np.array([value == 0 for value in guide]) | _special(vocabulary)
        result[silent] = 0.0
        return result

    def stopping_head(self, vocabulary: Vocabulary, size: int) -> Tensor:
        """Like `head`, but the end-of-turn token is written now and then."""
        result = self.head(vocabulary, size)
        result[vocabulary.id_of(EOT)] = self.matrix("stop", 1, size, _STOP_SPREAD)
        result[vocabulary.id_of(EOT), _OPEN_CHARACTER] = -_GUIDE_OUTPUT
        return result

    def unguided_head(self, vocabulary: Vocabulary, size: int) -> Tensor:
        """Every byte is as likely as every other; special tokens are never written."""
        result = self.matrix("output", len(vocabulary), size, _LOGIT_SPREAD)
        result[_special(vocabulary)] = 0.0
        return result


def _special(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    return np.array([token_type != TokenType.NORMAL for token_type in vocabulary.types])


def _is_continuation(raw: bytes) -> bool:
    return len(raw) == 1 and 0x80 <= raw[0] < 0xC0


def _opens_character(raw: bytes) -> bool:
    """Whether exactly one continuation byte, whichever, completes the token's last character."""
    if len(raw) == 1:
        return 0xC3 <= raw[0] < 0xE0
    return not _is_text(raw) and all(_is_text(raw + bytes([end])) for end in (0x80, 0xBF))


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _guide(raw: bytes) -> int:
    """+1: only inside an open character; -1: only outside of one; 0: never."""
    if _is_continuation(raw):
        return 1
    if _opens_character(raw):
        return -1
    readable = _is_text(raw) and all(byte >= 0x20 or byte == 0x0A for byte in raw)
    return -1 if raw and readable and raw != b"\x7f" else 0
