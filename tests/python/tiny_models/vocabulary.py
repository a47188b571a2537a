"""The tokenizer of the tiny models: byte-level BPE, so that any text can be encoded.

Ids 0 to 255 are the bytes themselves (id 65 is "A"), then come the merged tokens, then the special
ones. Some merged tokens end in the middle of a UTF-8 character.
"""

from __future__ import annotations

from typing import NamedTuple

from gguf import TokenType

# The pre-tokenizer's name in llama.cpp: single digits, words with their leading space, punctuation.
PRE_TOKENIZER = "smollm"

BOS = "<|bos|>"
EOS = "<|endoftext|>"
EOT = "<|im_end|>"
PAD = "<|pad|>"

_SPECIAL = {
    BOS: TokenType.CONTROL,
    EOS: TokenType.CONTROL,
    "<|im_start|>": TokenType.CONTROL,
    EOT: TokenType.CONTROL,
    PAD: TokenType.CONTROL,
    "<|unused0|>": TokenType.UNUSED,
    "<tool_call>": TokenType.USER_DEFINED,
    "</tool_call>": TokenType.USER_DEFINED,
}

# Each word is a token, and so is each of its prefixes of two bytes and more. Earlier words merge
# first; the tests check that every token is reachable.
_WORDS = (
    *("the", "and", "ing", "you", "hello", "world", "upon", "once", "time", "for", "are", "was"),
    *("tool", "name", "null", "true", "false", "sun", "dog", "cat", "lama"),
    *('{"', '":', '",', '"}', "\n\n", "  ", "é", "ü", "日", "本", "😀", "🦙"),
)
_SPACED_WORDS = ("the", "and", "you", "world", "upon", "time", "for", "dog", "cat")
# The first two of the three bytes of most hiragana.
_HIRAGANA_PREFIX = b"\xe3\x81"


class Vocabulary(NamedTuple):
    """Token texts by id, in the three shapes that the file and the weights need."""

    texts: list[str]  # as GGUF spells them: a printable character for each byte
    raw: list[bytes]  # what the token decodes to; empty for control and unused tokens
    types: list[TokenType]
    merges: list[str]

    def __len__(self) -> int:
        return len(self.texts)

    def id_of(self, text: str) -> int:
        """The id of a special token, for example `id_of("<|im_end|>")`."""
        return self.texts.index(text)


def _printable_bytes() -> list[str]:
    """GPT-2's alphabet: each byte is written as one printable character."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    shifted = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(shifted)) for byte in range(256)]


def _merged_pairs() -> list[tuple[bytes, bytes]]:
    pairs = [
        (word[:cut], word[cut : cut + 1])
        for word in (*(text.encode() for text in _WORDS), _HIRAGANA_PREFIX)
        for cut in range(1, len(word))
    ]
    pairs += [(b" ", text.encode()) for text in _SPACED_WORDS]
    return list(dict.fromkeys(pairs))


def build_vocabulary() -> Vocabulary:
    """The one vocabulary that all tiny models share."""
    alphabet = _printable_bytes()

    def spell(raw: bytes) -> str:
        return "".join(alphabet[byte] for byte in raw)

    pairs = _merged_pairs()
    raw = [bytes([byte]) for byte in range(256)]
    raw += [left + right for left, right in pairs]
    texts = [spell(token) for token in raw]
    types = [TokenType.NORMAL] * len(texts)
    for text, token_type in _SPECIAL.items():
        texts.append(text)
        types.append(token_type)
        raw.append(text.encode() if token_type == TokenType.USER_DEFINED else b"")
    merges = [f"{spell(left)} {spell(right)}" for left, right in pairs]
    return Vocabulary(texts, raw, types, merges)
