"""GGUF files as lists that can be changed, to something sound or not."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import Any

STRING = 8
ARRAY = 9
# By number of the type: format, or None for what has no fixed width.
FORMATS = ["B", "b", "H", "h", "I", "i", "f", "?", None, None, "Q", "q", "d"]
NUMBERS = [number for number, letter in enumerate(FORMATS) if letter not in (None, "?")]
INTEGERS = [number for number in NUMBERS if FORMATS[number] not in ("f", "d")]


@dataclass
class Pair:
    """A key with its value: a number, a bool, bytes, or a list of these with the type `element`."""

    key: bytes
    type: int
    value: Any
    element: int = 0
    count: int | None = None  # claimed for an array instead of its length


@dataclass
class Tensor:
    name: bytes
    dims: list[int]
    type: int
    data: bytes
    offset: int | None = None  # claimed instead of the right one
    n_dims: int | None = None  # claimed instead of the length of dims


@dataclass
class GgufFile:
    pairs: list[Pair] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    magic: bytes = b"GGUF"
    version: int = 3
    n_tensors: int | None = None  # claimed
    n_pairs: int | None = None
    alignment: int = 32

    def find(self, key: str) -> Pair | None:
        return next((pair for pair in self.pairs if pair.key == key.encode()), None)

    def set(self, key: str, type_: int, value: Any, element: int = 0) -> None:
        """Replace the value of `key`, or add the pair."""
        pair = self.find(key)
        if pair is None:
            self.pairs.append(Pair(key.encode(), type_, value, element))
        else:
            pair.type, pair.value, pair.element = type_, value, element

    @property
    def architecture(self) -> str:
        pair = self.find("general.architecture")
        value = pair.value if pair else b""
        return value.decode(errors="replace") if isinstance(value, bytes) else ""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self, letter: str) -> Any:
        (value,) = struct.unpack_from("<" + letter, self.data, self.at)
        self.at += struct.calcsize("<" + letter)
        return value

    def text(self) -> bytes:
        length = self.number("Q")
        self.at += length
        return self.data[self.at - length : self.at]

    def value(self, type_: int) -> Any:
        letter = FORMATS[type_]
        return self.text() if letter is None else self.number(letter)


def read(data: bytes) -> GgufFile:
    """Read a sound file."""
    reader = _Reader(data)
    reader.at = 4
    file = GgufFile(version=reader.number("I"))
    n_tensors, n_pairs = reader.number("Q"), reader.number("Q")
    for _ in range(n_pairs):
        key, type_ = reader.text(), reader.number("I")
        if type_ == ARRAY:
            element, count = reader.number("I"), reader.number("Q")
            values = [reader.value(element) for _ in range(count)]
            file.pairs.append(Pair(key, type_, values, element))
        else:
            file.pairs.append(Pair(key, type_, reader.value(type_)))
    for _ in range(n_tensors):
        name = reader.text()
        dims = [reader.number("Q") for _ in range(reader.number("I"))]
        file.tensors.append(Tensor(name, dims, reader.number("I"), b"", reader.number("Q")))
    start = _padded(reader.at, file.alignment)
    end = len(data)
    for tensor in reversed(file.tensors):
        begin = start + (tensor.offset or 0)
        tensor.data = data[begin:end]
        end = begin
    for tensor in file.tensors:
        tensor.offset = None
    return file


def _padded(size: int, alignment: int) -> int:
    return (size + alignment - 1) // alignment * alignment


def _number(type_: int, value: Any) -> bytes:
    """Write any number as any type: out of range it wraps around, as a careless writer's would."""
    letter = FORMATS[type_] or "B"
    if letter == "?":
        return struct.pack("<?", bool(value))
    if letter in "fd":
        try:
            return struct.pack("<" + letter, float(value))
        except OverflowError:
            return struct.pack("<" + letter, math.copysign(math.inf, value))
    bits = 8 * struct.calcsize(letter)
    whole = int(value) if math.isfinite(value) else 0
    return (whole & ((1 << bits) - 1)).to_bytes(bits // 8, "little")


def _text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def _value(type_: int, value: Any) -> bytes:
    if type_ == STRING:
        return _text(value if isinstance(value, bytes) else str(value).encode())
    if type_ >= len(FORMATS):
        return _number(4, 0)
    return _number(type_, 0 if isinstance(value, (bytes, list)) else value)


def _pair(pair: Pair) -> bytes:
    out = _text(pair.key) + struct.pack("<I", pair.type)
    if pair.type != ARRAY:
        return out + _value(pair.type, pair.value)
    values = pair.value if isinstance(pair.value, list) else [pair.value]
    count = len(values) if pair.count is None else pair.count
    out += _number(4, pair.element) + _number(10, count)
    return out + b"".join(_value(pair.element, value) for value in values)


def write(file: GgufFile) -> bytes:
    """Write a file as it says, sound or not."""
    counts = (
        len(file.tensors) if file.n_tensors is None else file.n_tensors,
        len(file.pairs) if file.n_pairs is None else file.n_pairs,
    )
    out = file.magic + struct.pack("<I", file.version & 0xFFFFFFFF)
    out += b"".join(_number(10, count) for count in counts)
    out += b"".join(_pair(pair) for pair in file.pairs)
    body = bytearray()
    for tensor in file.tensors:
        body += bytes(_padded(len(body), file.alignment) - len(body))
        offset = len(body) if tensor.offset is None else tensor.offset
        n_dims = len(tensor.dims) if tensor.n_dims is None else tensor.n_dims
        out += _text(tensor.name) + _number(4, n_dims)
        out += b"".join(_number(10, dim) for dim in tensor.dims)
        out += struct.pack("<IQ", tensor.type & 0xFFFFFFFF, offset & (2**64 - 1))
        body += tensor.data
    out += bytes(_padded(len(out), file.alignment) - len(out))
    return out + bytes(body)
