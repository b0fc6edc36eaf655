"""The container format of .gguf files: metadata and tensor directory, checked before use.

Parsed here rather than by the `gguf` package's reader, which trusts counts (an array that claims
2**60 entries keeps it busy for ever) and builds an object per vocabulary entry.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.gguf_cursor import ARRAY, LEAST_TENSOR, STRING, Cursor, Malformed
from dispersion.checkpoint.text import reason, shown
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Parsed = tuple[dict[str, Any], dict[str, "Stored"]]

MOST_AXES = 4  # GGML_MAX_DIMS


@dataclass(frozen=True)
class Stored:
    """One tensor of a file.

    Attributes:
        name: the GGUF name.
        type: the ggml type's name ("F32", "Q4_1", …).
        shape: row-major, the reverse of the file's order: projections are [out, in].
        file: the file that holds it.
        offset: of the first byte in the file.
        row_bytes: bytes of one row (the last axis).
    """

    name: str
    type: str
    shape: tuple[int, ...]
    file: str
    offset: int
    row_bytes: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape[:-1]) * self.row_bytes


def parse(path: Path) -> Parsed:
    """Metadata and tensors of a GGUF file (versions 2 and 3), by name.

    Arrays of more than 4096 entries are left out of the metadata.

    Raises:
        UnsupportedError: version 1, big-endian, or a tensor of unknown type.
        CheckpointError: unreadable, truncated or malformed.
    """
    with _opened(path) as cursor:
        return parse_header(cursor, str(path))


def read_texts(path: Path, key: str) -> list[str] | None:
    """A metadata list of texts of any length, such as a vocabulary; None where there is none.

    Raises:
        CheckpointError: unreadable, truncated or malformed.

    """
    with _opened(path) as cursor, named(str(path)):
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
            return [raw.decode("utf-8", "replace") for raw in cursor.raw_texts(count)]
    return None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Cursor]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if size == 0:
                msg = "is empty"
                raise Malformed(msg)
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except Malformed as error:
        raise malformed(str(path), error) from None
    except (OSError, ValueError) as error:
        msg = f"{shown(path)} cannot be read ({reason(error)})."
        raise CheckpointError(msg) from None
    with data:
        yield Cursor(data, size)


@contextlib.contextmanager
def named(file: str) -> Iterator[None]:
    """Name the file that is malformed."""
    try:
        yield
    except Malformed as error:
        raise malformed(file, error) from None


def malformed(file: str, error: Malformed) -> CheckpointError:
    """What is wrong with which file."""
    msg = f"{shown(file)} {error}; it is truncated or malformed. Fetch it again."
    return CheckpointError(msg)


def parse_header(cursor: Cursor, file: str) -> Parsed:
    """Metadata and tensors of the file that a cursor stands at the beginning of.

    Args:
        cursor: at byte 0.
        file: named in messages and by the tensors.

    Raises:
        UnsupportedError: version 1, big-endian, or a tensor of unknown type.
        CheckpointError: truncated or malformed.
    """
    with named(file):
        return _parse(cursor, file)


def _parse(cursor: Cursor, file: str) -> Parsed:
    cursor.skip(4)
    if cursor.data[:4] != b"GGUF":
        msg = "does not start with GGUF"
        raise Malformed(msg)
    version = cursor.number("<I")
    if version not in (2, 3):
        what = "big-endian" if version & 0xFFFF == 0 else f"of version {version}"
        msg = (
            f"{shown(file)} is a GGUF file {what}; little-endian versions 2 and 3 are read. "
            "Convert the model again."
        )
        raise UnsupportedError(msg)
    tensor_count, value_count = cursor.number("<Q"), cursor.number("<Q")
    metadata = cursor.metadata(value_count, tensor_count)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1):
        msg = f"has general.alignment {shown(alignment)}, not a power of two"
        raise Malformed(msg)
    directory = []
    for left in range(tensor_count - 1, -1, -1):
        cursor.owed = left * LEAST_TENSOR
        directory.append(_tensor(cursor, file))
    data = -(-cursor.at // alignment) * alignment
    tensors: dict[str, Stored] = {}
    reached = data
    for found in sorted(directory, key=lambda t: t.offset):
        start = data + found.offset
        if found.name in tensors:
            msg = f"holds the tensor {shown(found.name)} twice"
            raise Malformed(msg)
        if found.offset % alignment or start < reached:
            msg = f"places the tensor {shown(found.name)} over another or off its alignment"
            raise Malformed(msg)
        reached = start + found.nbytes
        if reached > cursor.size:
            msg = f"has {cursor.size} bytes, but its tensor {shown(found.name)} ends at {reached}"
            raise Malformed(msg)
        tensors[found.name] = Stored(
            found.name, found.type, found.shape, file, start, found.row_bytes
        )
    return metadata, tensors


def _tensor(cursor: Cursor, file: str) -> Stored:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    name = cursor.text()
    axes = cursor.number("<I")
    if not 1 <= axes <= MOST_AXES:
        msg = f"gives the tensor {shown(name)} {axes} axes, not 1 to {MOST_AXES}"
        raise Malformed(msg)
    shape = tuple(cursor.number("<Q") for _ in range(axes))[::-1]
    number = cursor.number("<I")
    try:
        kind = GGMLQuantizationType(number)
    except ValueError:
        msg = (
            f"{shown(file)}: the tensor {shown(name)} has the type {number}, which the gguf "
            "package does not know. Requantise the model to Q8_0 or F16."
        )
        raise UnsupportedError(msg) from None
    block, block_bytes = GGML_QUANT_SIZES[kind]
    if shape[-1] % block:
        msg = f"has rows of {shape[-1]} in the tensor {shown(name)}; {kind.name} needs {block}s"
        raise Malformed(msg)
    row_bytes = shape[-1] // block * block_bytes
    return Stored(name, str(kind.name), shape, file, cursor.number("<Q"), row_bytes)
