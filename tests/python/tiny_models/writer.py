"""Writes a tiny model to a GGUF file, once per directory."""

from __future__ import annotations

import os
from pathlib import Path

from gguf import GGUFWriter

from tiny_models.architectures import BUILDERS, Metadata
from tiny_models.chat_template import CHAT_TEMPLATE
from tiny_models.kinds import KINDS, Kind
from tiny_models.vocabulary import BOS, EOS, EOT, PAD, PRE_TOKENIZER, Vocabulary, build_vocabulary
from tiny_models.weights import Weights


def tiny_model(kind: Kind, directory: Path, *, seed: int = 0) -> Path:
    """The path of the tiny model of that kind in `directory`; written if it is not there yet.

    The same kind and seed give the same bytes. Another seed gives another model of that kind.

    Raises:
        ValueError: for a kind that does not exist.

    Example:
        >>> path = tiny_model("plain", Path("/tmp/models"))
        >>> path.name
        'tiny-plain-0.gguf'
    """
    if kind not in KINDS:
        raise ValueError(f"tiny model kind: got {kind!r}, expected one of {', '.join(KINDS)}")
    path = directory / f"tiny-{kind}-{seed}.gguf"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        # Several test processes may share the directory: none may see half a file.
        unfinished = path.with_suffix(f".{os.getpid()}.tmp")
        _write(kind, unfinished, seed)
        unfinished.replace(path)
    return path


def _write(kind: Kind, path: Path, seed: int) -> None:
    vocabulary = build_vocabulary()
    model = BUILDERS[kind](Weights(seed), vocabulary)
    writer = GGUFWriter(path, model.name)
    writer.add_name(f"tiny-{kind}")
    _add_metadata(writer, model.name, model.metadata)
    _add_tokenizer(writer, vocabulary)
    for name, tensor in model.tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_metadata(writer: GGUFWriter, prefix: str, metadata: Metadata) -> None:
    for name, value in metadata.items():
        key = f"{prefix}.{name}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_array(key, value)


def _add_tokenizer(writer: GGUFWriter, vocabulary: Vocabulary) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZER)
    writer.add_token_list(vocabulary.texts)
    writer.add_token_types(vocabulary.types)
    writer.add_token_merges(vocabulary.merges)
    writer.add_token_type_count(1)
    writer.add_bos_token_id(vocabulary.id_of(BOS))
    writer.add_eos_token_id(vocabulary.id_of(EOS))
    writer.add_eot_token_id(vocabulary.id_of(EOT))
    writer.add_pad_token_id(vocabulary.id_of(PAD))
    writer.add_add_bos_token(True)
    writer.add_chat_template(CHAT_TEMPLATE)
