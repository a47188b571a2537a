"""Model files: tiny ones of every kind of memory, with what their structure is made of changed."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

from gguf.constants import MODEL_ARCH_NAMES, Keys
from tiny_models import KINDS, tiny_model

import pronk
from fuzz import gguf_file, mutate
from fuzz.gguf_file import ARRAY, INTEGERS, NUMBERS, STRING, GgufFile, Pair, Tensor
from fuzz.kinds.prompt import PRE_TOKENIZERS
from fuzz.world import finish

UINT32, FLOAT32, BOOL = 4, 6, 7
TOKENIZERS = ["gpt2", "llama", "bert", "t5", "rwkv", "plamo2", "no_vocab", "none", "replit", "x"]
FLAGS = [
    "add_bos_token",
    "add_eos_token",
    "add_sep_token",
    "add_space_prefix",
    "remove_extra_whitespaces",
]
IDS = [
    *("bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "mask", "prefix", "suffix"),
    *("middle", "fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep", "cls"),
]


def _architecture_keys() -> list[str]:
    """The metadata that some architecture has, without its name."""
    found = set()
    for group in vars(Keys).values():
        for key in vars(group).values() if isinstance(group, type) else ():
            if isinstance(key, str) and key.startswith("{arch}."):
                found.add(key.removeprefix("{arch}."))
    return sorted(found)


ARCHITECTURES = sorted(MODEL_ARCH_NAMES.values())
KEYS = _architecture_keys()


class Model:
    def __init__(self, scratch: Path) -> None:
        self.path = scratch / "mutant.gguf"
        sound = [tiny_model(kind, scratch).read_bytes() for kind in KINDS]
        self.files = [gguf_file.read(data) for data in sound]
        assert [gguf_file.write(file) for file in self.files] == sound
        self.turn = 0

    def make(self, rng: random.Random) -> bytes:
        file = copy.deepcopy(rng.choice(self.files))
        for _ in range(rng.choice([1, 1, 1, 2, 2, 3])):
            rng.choice(CHANGES)(rng, file)
        data = gguf_file.write(file)
        return raw(rng, data) if rng.random() < 0.15 else data

    def run(self, data: bytes) -> None:
        self.path.write_bytes(data)
        # Both ways of reading it; what is mapped must not be written to again.
        engine = pronk.InferenceEngine.load(self.path, use_mmap=len(data) % 2 == 0)
        self.path.unlink()
        text = "Once upon <|im_end|> a time, é漢🙂\0 " + "ab" * 40
        engine.detokenize(engine.tokenize(text, parse_special=True), special=True)
        engine.render_chat([{"role": "user", "content": text}])
        layout = "isolated" if len(data) % 3 == 0 else "batched"
        with pronk.InferenceScheduler(2) as scheduler:
            scheduler.init_pool(engine, n_ctx=128, n_threads=1, layout=layout, n_batch=32)
            options: dict[str, Any] = {"max_tokens": 4, "seed": 1}
            running = [
                scheduler.generate(text, **options),
                scheduler.generate([1, 2, 3], temperature=0, **options),
                scheduler.generate("b", grammar='root ::= "a" [a-z]*', **options),
            ]
            failed = None
            for generation in running:
                try:
                    finish(generation)
                except pronk.Error as error:  # noqa: PERF203 - each is to be finished
                    failed = error
            if failed:
                raise failed

    def settle(self) -> None:
        # The device and the sound model work as before.
        self.turn += 1
        if self.turn % 50 == 0:
            self.path.write_bytes(gguf_file.write(self.files[0]))
            self.run(self.path.read_bytes())


def some_pair(rng: random.Random, file: GgufFile) -> Pair:
    """A pair, of the architecture's own more often than of the rest."""
    start = file.architecture.encode() + b"."
    own = [pair for pair in file.pairs if pair.key.startswith(start)]
    return rng.choice(own if own and rng.random() < 0.6 else file.pairs or [Pair(b"x", UINT32, 1)])


def some_value(rng: random.Random, type_: int, near: Any = None) -> Any:
    if type_ == STRING:
        return mutate.odd_text(rng).encode()
    if type_ == BOOL:
        return rng.random() < 0.5
    if type_ in INTEGERS:
        return mutate.integer(rng, near if isinstance(near, int) else None)
    return mutate.number(rng)


def change_value(rng: random.Random, file: GgufFile) -> None:
    pair = some_pair(rng, file)
    if pair.type != ARRAY:
        pair.value = some_value(rng, pair.type, pair.value)
    elif pair.value:
        at = rng.randrange(len(pair.value))
        pair.value[at] = some_value(rng, pair.element, pair.value[at])


def change_type(rng: random.Random, file: GgufFile) -> None:
    pair = some_pair(rng, file)
    if pair.type == ARRAY:
        pair.element = rng.choice([*NUMBERS, STRING, BOOL, ARRAY, 13, 2**31])
    elif rng.random() < 0.3:
        pair.value, pair.element, pair.type = [pair.value] * rng.randrange(4), pair.type, ARRAY
    else:
        pair.type = rng.choice([*NUMBERS, *NUMBERS, STRING, BOOL, 13, 2**32 - 1])


def change_array(rng: random.Random, file: GgufFile) -> None:
    arrays = [pair for pair in file.pairs if pair.type == ARRAY and pair.value]
    if not arrays:
        return
    pair = rng.choice(arrays)
    kind = rng.randrange(6)
    if kind == 0:
        del pair.value[rng.randrange(len(pair.value)) :]
    elif kind == 1:
        pair.value += pair.value[: rng.choice([1, 5, len(pair.value)])]
    elif kind == 2:
        rng.shuffle(pair.value)
    elif kind == 3:
        pair.count = mutate.integer(rng, len(pair.value))
    elif kind == 4:
        first, second = rng.randrange(len(pair.value)), rng.randrange(len(pair.value))
        pair.value[first] = pair.value[second]
    else:
        pair.value[:] = [some_value(rng, pair.element, each) for each in pair.value]


def change_keys(rng: random.Random, file: GgufFile) -> None:
    if not file.pairs:
        return
    pair = some_pair(rng, file)
    kind = rng.randrange(4)
    if kind <= 1 and pair in file.pairs:
        file.pairs.remove(pair)
    elif kind == 2:
        file.pairs.insert(rng.randrange(len(file.pairs) + 1), copy.deepcopy(pair))
    else:
        pair.key = rng.choice(
            [b"", pair.key + b"x", mutate.odd_text(rng).encode(), some_pair(rng, file).key]
        )


def add_key(rng: random.Random, file: GgufFile) -> None:
    """A key that this architecture, or another, may have."""
    key = f"{file.architecture}.{rng.choice(KEYS)}"
    type_ = rng.choice([UINT32, UINT32, FLOAT32, BOOL, STRING, ARRAY, *NUMBERS])
    if type_ == ARRAY:
        element = rng.choice([UINT32, FLOAT32, BOOL, STRING])
        values = [some_value(rng, element) for _ in range(rng.choice([0, 1, 2, 3, 600]))]
        file.set(key, ARRAY, values, element)
    else:
        file.set(key, type_, some_value(rng, type_))


def change_architecture(rng: random.Random, file: GgufFile) -> None:
    old, new = file.architecture, rng.choice(ARCHITECTURES)
    file.set("general.architecture", STRING, new.encode())
    for pair in file.pairs:
        if pair.key.startswith(old.encode() + b"."):
            pair.key = new.encode() + pair.key[len(old) :]


def change_tokenizer(rng: random.Random, file: GgufFile) -> None:
    """Another tokenizer over the same tokens, with what it needs or without."""
    file.set("tokenizer.ggml.model", STRING, rng.choice(TOKENIZERS).encode())
    if rng.random() < 0.5:
        file.set("tokenizer.ggml.pre", STRING, rng.choice(PRE_TOKENIZERS).encode())
    tokens = file.find("tokenizer.ggml.tokens")
    if tokens and isinstance(tokens.value, list) and rng.random() < 0.7:
        n = len(tokens.value)
        scores = [float(-each) if rng.random() < 0.99 else mutate.number(rng) for each in range(n)]
        file.set("tokenizer.ggml.scores", ARRAY, scores, FLOAT32)
        if rng.random() < 0.6 and n > 20:
            # As sentence pieces have them: <unk>, <s>, </s>, then the bytes, then words.
            start = [b"<unk>", b"<s>", b"</s>"] + [b"<0x%02X>" % byte for byte in range(256)]
            tokens.value[: len(start)] = start[:n]
            types = file.find("tokenizer.ggml.token_type")
            if types and isinstance(types.value, list):
                types.value[: len(start)] = ([2, 3, 3] + [6] * 256)[: len(types.value)]
            file.set("tokenizer.ggml.unknown_token_id", UINT32, 0)
    if rng.random() < 0.2:
        data = [rng.randrange(256) for _ in range(rng.choice([0, 3, 4, 64, 1000]))]
        file.set("tokenizer.ggml.precompiled_charsmap", ARRAY, data, rng.choice([0, 1]))


def change_special(rng: random.Random, file: GgufFile) -> None:
    if rng.random() < 0.5:
        file.set(f"tokenizer.ggml.{rng.choice(FLAGS)}", BOOL, rng.random() < 0.7)
    else:
        key = f"tokenizer.ggml.{rng.choice(IDS)}_token_id"
        file.set(key, rng.choice([UINT32, UINT32, 5, 10]), mutate.integer(rng, 330))


def change_token(rng: random.Random, file: GgufFile) -> None:
    name = rng.choice(["tokens", "token_type", "merges", "scores"])
    pair = file.find(f"tokenizer.ggml.{name}")
    if pair is None or not isinstance(pair.value, list) or not pair.value:
        return
    for _ in range(rng.choice([1, 1, 5])):
        at = rng.randrange(len(pair.value))
        if name == "merges":
            pair.value[at] = rng.choice([b"a b", b"a", b"", b" ", b"a b c", b"\xff \xfe", b" a"])
        elif name == "tokens":
            pair.value[at] = rng.choice([b"", b"\0", b"\xff", b"a\0b", b"<0x0A>", b"x" * 70_000])
        else:
            pair.value[at] = some_value(rng, pair.element)


def some_tensor(rng: random.Random, file: GgufFile) -> Tensor | None:
    return rng.choice(file.tensors) if file.tensors else None


def change_tensor(rng: random.Random, file: GgufFile) -> None:
    tensor = some_tensor(rng, file)
    if tensor is None:
        return
    kind = rng.randrange(8)
    if kind == 0:
        tensor.name = rng.choice(
            [b"", b"x" * 64, tensor.name + b"2", rng.choice(file.tensors).name]
        )
    elif kind == 1:
        file.tensors.remove(tensor)
    elif kind == 2:
        file.tensors.append(copy.deepcopy(tensor))
    elif kind == 3:
        tensor.n_dims = mutate.integer(rng, len(tensor.dims))
    elif kind == 4:
        tensor.offset = mutate.integer(rng)
    elif kind == 5 and tensor.dims:
        at = rng.randrange(len(tensor.dims))
        tensor.dims[at] = mutate.integer(rng, tensor.dims[at])
    elif kind == 6:
        tensor.type = rng.choice([*range(42), 2**31])
    else:
        tensor.dims.reverse()


def reshape_tensor(rng: random.Random, file: GgufFile) -> None:
    """Another shape or type, with the data that belongs to it: the file as such is sound."""
    tensor = some_tensor(rng, file)
    if tensor is None or not tensor.dims:
        return
    if rng.random() < 0.5:
        at = rng.randrange(len(tensor.dims))
        tensor.dims[at] = max(1, min(4096, abs(mutate.integer(rng, tensor.dims[at]))))
    elif rng.random() < 0.5:
        tensor.dims = [*tensor.dims, 1] if len(tensor.dims) < 4 else tensor.dims[:-1]
    elements = 1
    for dim in tensor.dims:
        elements *= dim
    elements = min(elements, 1 << 20)
    # f32, f16, q4_0, q8_0: bytes and elements of a block.
    tensor.type, size, block = rng.choice(
        [(0, 4, 1), (1, 2, 1), (2, 18, 32), (8, 34, 32), (30, 2, 1)]
    )
    tensor.data = (tensor.data * (1 + elements * size // max(1, len(tensor.data))))[
        : elements // block * size
    ]


def change_weights(rng: random.Random, file: GgufFile) -> None:
    tensor = some_tensor(rng, file)
    if tensor is None or not tensor.data:
        return
    data = bytearray(tensor.data)
    pattern = rng.choice(
        [b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\xff" * 4, b"\0" * 4, rng.randbytes(4)]
    )
    for _ in range(rng.choice([1, 10, len(data) // 4])):
        at = rng.randrange(len(data)) // 4 * 4
        data[at : at + 4] = pattern[: len(data[at : at + 4])]
    tensor.data = bytes(data)


def change_header(rng: random.Random, file: GgufFile) -> None:
    kind = rng.randrange(5)
    if kind == 0:
        file.version = mutate.integer(rng, 3)
    elif kind == 1:
        file.n_tensors = mutate.integer(rng, len(file.tensors))
    elif kind == 2:
        file.n_pairs = mutate.integer(rng, len(file.pairs))
    elif kind == 3:
        file.magic = rng.choice([b"GGML", b"FUGG", b"\0\0\0\0", b"PK\3\4"])
    else:
        file.set(
            "general.alignment", rng.choice([UINT32, UINT32, 10, STRING]), mutate.integer(rng, 32)
        )
        if rng.random() < 0.5:
            file.alignment = rng.choice([1, 8, 64, 4096])
            file.set("general.alignment", UINT32, file.alignment)


def change_chat_template(rng: random.Random, file: GgufFile) -> None:
    words = ["{{", "}}", "{% for m in messages %}", "{% endfor %}", "m.content", "{% if"]
    file.set("tokenizer.chat_template", STRING, mutate.odd_text(rng, words).encode())


CHANGES = [
    *(change_value, change_value, change_value, change_type, change_array, change_keys, add_key),
    *(add_key, change_architecture, change_tokenizer, change_special, change_token, change_tensor),
    *(reshape_tensor, change_weights, change_header, change_chat_template),
]


def raw(rng: random.Random, source: bytes) -> bytes:
    """Bytes changed where they lie, or cut off."""
    data = bytearray(source)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(min(len(data), rng.choice([64, 4096, len(data)])))
        kind = rng.randrange(4)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at : at + 8] = (mutate.integer(rng) & (2**64 - 1)).to_bytes(8, "little")
        elif kind == 2:
            data[at : at + 4] = (mutate.integer(rng) & (2**32 - 1)).to_bytes(4, "little")
        else:
            del data[rng.randrange(len(data)) :]
            break
        if not data:
            break
    return bytes(data)


def make_kind(scratch: Path) -> Model:
    return Model(scratch)
