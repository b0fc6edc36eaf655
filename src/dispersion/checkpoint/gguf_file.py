"""The container format of .gguf files: metadata and tensor directory, checked before use.

Parsed here rather than by the `gguf` package's reader, which trusts counts (an array that claims
2**60 entries keeps it busy for ever) and builds an object per vocabulary entry.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.text import reason, shown
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from pathlib import Path

SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
STRING, ARRAY = 8, 9
LONGEST_KEPT = 4096  # entries; vocabularies are longer and of no use here
MOST_AXES = 4  # GGML_MAX_DIMS


@dataclass(frozen=True)
class Stored:
    """One tensor of the file.

    Attributes:
        name: the GGUF name.
        type: the ggml type's name ("F32", "Q4_1", …).
        shape: row-major, the reverse of the file's order: projections are [out, in].
        offset: of the first byte in the file.
        row_bytes: bytes of one row (the last axis).
    """

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    row_bytes: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape[:-1]) * self.row_bytes


class _Malformed(Exception):
    pass


class _Cursor:
    """Reads forward through bytes and never past their end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at, self.size = data, 0, len(data)

    def skip(self, count: int) -> int:
        if count > self.size - self.at:
            msg = f"ends at byte {self.size}, inside its header"
            raise _Malformed(msg)
        start, self.at = self.at, self.at + count
        return start

    def number(self, code: str) -> Any:
        return struct.unpack_from(code, self.data, self.skip(struct.calcsize(code)))[0]

    def text(self) -> str:
        length = self.number("<Q")
        start = self.skip(length)
        try:
            return self.data[start : start + length].decode("utf-8")
        except UnicodeDecodeError:
            msg = f"holds text at byte {start} that is not UTF-8"
            raise _Malformed(msg) from None

    def value(self, kind: int) -> Any:
        """A metadata value; None for arrays that are too long to matter."""
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            msg = f"holds a metadata value of unknown type {kind}"
            raise _Malformed(msg)
        kind, count = self.number("<I"), self.number("<Q")
        if kind == STRING:
            if count <= LONGEST_KEPT:
                return [self.text() for _ in range(count)]
            for _ in range(count):
                self.skip(self.number("<Q"))
            return None
        if kind not in SCALARS:
            msg = f"holds a metadata array of type {kind}, neither numbers nor text"
            raise _Malformed(msg)
        start = self.skip(count * struct.calcsize(SCALARS[kind]))
        if count > LONGEST_KEPT:
            return None
        return list(struct.unpack_from(f"<{count}{SCALARS[kind][1]}", self.data, start))


def parse(path: Path) -> tuple[dict[str, Any], dict[str, Stored]]:
    """Metadata and tensors of a GGUF file (versions 2 and 3), by name.

    Arrays of more than 4096 entries are left out of the metadata.

    Raises:
        UnsupportedError: version 1, big-endian, or one part of a split file.
        CheckpointError: unreadable, truncated or malformed.
    """
    try:
        with _mapped(path) as data:
            return _parse(_Cursor(data), path)
    except _Malformed as error:
        msg = f"{shown(path)} {error}; it is truncated or malformed. Fetch it again."
        raise CheckpointError(msg) from None
    except (OSError, ValueError) as error:
        msg = f"{shown(path)} cannot be read ({reason(error)})."
        raise CheckpointError(msg) from None


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            msg = "is empty"
            raise _Malformed(msg)
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def read_texts(path: Path, key: str) -> list[str] | None:
    """A metadata list of texts of any length, such as a vocabulary; None where there is none.

    Raises:
        CheckpointError: unreadable, truncated or malformed.

    """
    try:
        with _mapped(path) as data:
            return _texts(_Cursor(data), key)
    except _Malformed as error:
        msg = f"{shown(path)} {error}; it is truncated or malformed. Fetch it again."
        raise CheckpointError(msg) from None
    except (OSError, ValueError) as error:
        msg = f"{shown(path)} cannot be read ({reason(error)})."
        raise CheckpointError(msg) from None


def _texts(cursor: _Cursor, key: str) -> list[str] | None:
    cursor.skip(4 + 4)
    _, values = cursor.number("<Q"), cursor.number("<Q")
    for _ in range(values):
        name, kind = cursor.text(), cursor.number("<I")
        if name != key or kind != ARRAY:
            cursor.value(kind)
            continue
        kind, count = cursor.number("<I"), cursor.number("<Q")
        if kind != STRING:
            return None
        texts = []
        for _ in range(count):
            length = cursor.number("<Q")
            start = cursor.skip(length)
            texts.append(cursor.data[start : start + length].decode("utf-8", "replace"))
        return texts
    return None


def _parse(cursor: _Cursor, path: Path) -> tuple[dict[str, Any], dict[str, Stored]]:
    if cursor.data[:4] != b"GGUF":
        msg = "does not start with GGUF"
        raise _Malformed(msg)
    cursor.skip(4)
    version = cursor.number("<I")
    if version not in (2, 3):
        what = "big-endian" if version & 0xFFFF == 0 else f"of version {version}"
        msg = (
            f"{shown(path)} is a GGUF file {what}; little-endian versions 2 and 3 are read. "
            "Convert the model again."
        )
        raise UnsupportedError(msg)
    tensor_count, value_count = cursor.number("<Q"), cursor.number("<Q")
    metadata: dict[str, Any] = {}
    for _ in range(value_count):
        key = cursor.text()
        if key in metadata:
            msg = f"holds the metadata key {shown(key)} twice"
            raise _Malformed(msg)
        metadata[key] = cursor.value(cursor.number("<I"))
    if metadata.get("split.count", 1) not in (0, 1):
        msg = (
            f"{shown(path)} is one part of a split model. "
            "Merge the parts with `llama-gguf-split --merge` and give the result."
        )
        raise UnsupportedError(msg)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1):
        msg = f"has general.alignment {shown(alignment)}, not a power of two"
        raise _Malformed(msg)
    directory = [_tensor(cursor) for _ in range(tensor_count)]
    data = -(-cursor.at // alignment) * alignment
    tensors: dict[str, Stored] = {}
    reached = data
    for found in sorted(directory, key=lambda t: t.offset):
        start = data + found.offset
        if found.name in tensors:
            msg = f"holds the tensor {shown(found.name)} twice"
            raise _Malformed(msg)
        if found.offset % alignment or start < reached:
            msg = f"places the tensor {shown(found.name)} over another or off its alignment"
            raise _Malformed(msg)
        reached = start + found.nbytes
        if reached > cursor.size:
            msg = f"has {cursor.size} bytes, but its tensor {shown(found.name)} ends at {reached}"
            raise _Malformed(msg)
        tensors[found.name] = Stored(found.name, found.type, found.shape, start, found.row_bytes)
    return metadata, tensors


def _tensor(cursor: _Cursor) -> Stored:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    name = cursor.text()
    axes = cursor.number("<I")
    if not 1 <= axes <= MOST_AXES:
        msg = f"gives the tensor {shown(name)} {axes} axes, not 1 to {MOST_AXES}"
        raise _Malformed(msg)
    shape = tuple(cursor.number("<Q") for _ in range(axes))[::-1]
    number = cursor.number("<I")
    try:
        kind = GGMLQuantizationType(number)
    except ValueError:
        msg = f"gives the tensor {shown(name)} the unknown type {number}"
        raise _Malformed(msg) from None
    block, block_bytes = GGML_QUANT_SIZES[kind]
    if shape[-1] % block:
        msg = f"has rows of {shape[-1]} in the tensor {shown(name)}; {kind.name} needs {block}s"
        raise _Malformed(msg)
    row_bytes = shape[-1] // block * block_bytes
    return Stored(name, str(kind.name), shape, cursor.number("<Q"), row_bytes)
