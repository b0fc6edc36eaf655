"""One .safetensors file: the header parsed and checked here, the bytes mapped on demand.

The file is an 8-byte little-endian length, that many bytes of JSON, then the data. What is accepted
follows the reference implementation (safetensors 0.8, `SafeTensors::deserialize`): the tensors,
sorted by offset, must cover the data without gap, overlap or trailing bytes, and the header may
have at most 100 000 000 bytes. It is stricter in one place, where the format's own text is too: a
JSON key that occurs twice is refused, since which of the two a reader would see is undefined.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.checkpoint.dtypes import BITS, stored
from dispersion.checkpoint.pickles import refuse_pickle
from dispersion.checkpoint.tensors import TensorInfo
from dispersion.checkpoint.text import as_json, parse_object, reason, shown
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from numpy.typing import NDArray

LONGEST_HEADER = 100_000_000
LFS_POINTER = b"version https://git-lfs"


@dataclass(frozen=True)
class Entry:
    """One tensor: what the header says, and where its bytes start in the file."""

    info: TensorInfo
    offset: int


def read_header(path: Path) -> dict[str, Entry]:
    """The tensors of a file, by name, after every check that needs no tensor bytes.

    Raises:
        UnsafeFileError: the bytes are a pickle or a PyTorch archive under a wrong name.
        CheckpointError: unreadable, truncated or malformed; the message says what and where.
    """
    raw, size = _raw_header(path)
    return parse_header(raw, size, path)


def parse_header(raw: bytes, size: int, path: Path | str) -> dict[str, Entry]:
    """The tensors that a header of `raw` bytes describes, in a file of `size` bytes.

    Raises:
        CheckpointError: malformed, or not covering the file; the message says what and where.
    """
    length = len(raw)
    header = parse_object(raw, f"{shown(path)}: the safetensors header", strict=True)
    _check_metadata(header.pop("__metadata__", None), path)
    entries = {name: _entry(name, value, 8 + length, path) for name, value in header.items()}
    _check_coverage(entries, 8 + length, size, path)
    return entries


def check_start(ahead: bytes, size: int, path: Path | str) -> int:
    """The header's length, from the first bytes of a file of `size` bytes.

    Raises:
        CheckpointError: a Git LFS pointer, a truncated file, or a header that is too long.
    """
    length = int.from_bytes(ahead[:8], "little")
    if ahead.startswith(LFS_POINTER):
        msg = f"{shown(path)} is a Git LFS pointer, not the weights. Run `git lfs pull`."
        raise CheckpointError(msg)
    if size < 8 or length > size - 8:
        needs = f"; its header length asks for {length + 8}" if size >= 8 else ""
        msg = (
            f"{shown(path)} is truncated or not safetensors: it has {size} bytes{needs}. "
            "Fetch it again."
        )
        raise CheckpointError(msg)
    if length > LONGEST_HEADER:
        msg = f"{shown(path)}: the header may have at most {LONGEST_HEADER} bytes. Got {length}."
        raise CheckpointError(msg)
    return length


def _raw_header(path: Path) -> tuple[bytes, int]:
    """The header's bytes and the size of the file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            ahead = file.read(64)
            length = int.from_bytes(ahead[:8], "little")
            file.seek(8)
            raw = file.read(length) if length <= min(size - 8, LONGEST_HEADER) else b""
    except (OSError, ValueError) as error:
        msg = (
            f"{shown(path)} cannot be read ({reason(error)}). Check that it exists and may be read."
        )
        raise CheckpointError(msg) from None
    refuse_pickle(path, ahead)
    check_start(ahead, size, path)
    return raw, size


def _check_metadata(value: Any, path: Path | str) -> None:
    if value is None:
        return
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        msg = f"{shown(path)}: __metadata__ must map strings to strings. Write the file again."
        raise CheckpointError(msg)


def _entry(name: str, value: Any, data: int, path: Path | str) -> Entry:
    where = f"{shown(path)}: tensor {shown(name)}"
    if not isinstance(value, dict):
        msg = f"{where} must be an object with dtype, shape and data_offsets. Got {as_json(value)}."
        raise CheckpointError(msg)
    missing = [key for key in ("dtype", "shape", "data_offsets") if key not in value]
    if missing:
        msg = f"{where} lacks {', '.join(missing)}; the header is malformed."
        raise CheckpointError(msg)
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        msg = f"{where} has the unknown dtype {as_json(dtype)}. Known: {', '.join(BITS)}."
        raise CheckpointError(msg)
    if not isinstance(shape, list) or not all(map(_is_size, shape)):
        msg = f"{where}: shape must be a list of integers from 0 on. Got {as_json(shape)}."
        raise CheckpointError(msg)
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        msg = f"{where}: data_offsets must be two integers from 0 on. Got {as_json(offsets)}."
        raise CheckpointError(msg)
    begin, end = offsets
    bits = math.prod(shape) * BITS[dtype]
    if bits != 8 * (end - begin):
        msg = (
            f"{where}: shape {shown(shape)} of {dtype} takes {shown(bits)} bits, but data_offsets "
            f"{shown(offsets)} span {end - begin} bytes; the header is malformed."
        )
        raise CheckpointError(msg)
    return Entry(TensorInfo(name, dtype, tuple(shape), str(path), end - begin), data + begin)


def _is_size(value: Any) -> bool:
    # bool is an int to Python, but `true` is no size; 2**64 and more is no size anywhere.
    return type(value) is int and 0 <= value < 2**64


def _check_coverage(entries: dict[str, Entry], data: int, size: int, path: Path | str) -> None:
    reached = data
    for entry in sorted(entries.values(), key=lambda e: (e.offset, e.info.nbytes)):
        if entry.offset != reached:
            what = (
                "overlaps its predecessor" if entry.offset < reached else "leaves a gap before it"
            )
            msg = (
                f"{shown(path)}: tensor {shown(entry.info.name)} {what} (it starts at data byte "
                f"{entry.offset - data}, expected {reached - data}); the format requires "
                "contiguous tensors."
            )
            raise CheckpointError(msg)
        reached += entry.info.nbytes
    if reached > size:
        msg = (
            f"{shown(path)} is truncated: its tensors need {reached} bytes, it has {size}. "
            "Fetch it again."
        )
        raise CheckpointError(msg)
    if reached < size:
        msg = f"{shown(path)} has {size - reached} bytes after its last tensor; it is malformed."
        raise CheckpointError(msg)


def read_entry(entry: Entry, rows: slice | None) -> NDArray[Any]:
    """Values of one tensor, or of rows start to stop, as a read-only array over its own map.

    8-bit floats come as they are stored, without their scale.

    Raises:
        UnsupportedError: a dtype that is not read as weights.
        CheckpointError: the file changed since its header was read, or the shape is impossible.
    """
    dtype, start, shape = located(entry.info, rows)
    return map_bytes(entry.info, entry.offset + start, shape, dtype)


def located(info: TensorInfo, rows: slice | None) -> tuple[np.dtype[Any], int, tuple[int, ...]]:
    """How rows of a tensor lie in it: dtype, first byte and shape.

    Raises:
        UnsupportedError: a dtype that is not read as weights.
    """
    dtype = stored(info.dtype, info.name)
    if rows is None:
        return dtype, 0, info.shape
    others = info.shape[1:]
    return dtype, rows.start * math.prod(others) * dtype.itemsize, (rows.stop - rows.start, *others)


def map_bytes(
    info: TensorInfo, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """A read-only array over `offset` of the tensor's file, unmapped when the array dies.

    Raises:
        CheckpointError: the file cannot be mapped there, or NumPy cannot hold the shape.
    """
    count = math.prod(shape)
    try:
        if count == 0:  # an empty map is an error to the operating system
            flat: NDArray[Any] = np.empty(0, dtype)
            flat.flags.writeable = False
        else:
            size, end = Path(info.file).stat().st_size, offset + count * dtype.itemsize
            if size < end:
                msg = f"it has {size} bytes, the tensor ends at {end}"
                raise ValueError(msg)
            flat = np.asarray(np.memmap(info.file, dtype, "r", offset, count))
        return flat.reshape(shape)
    except (OSError, ValueError, OverflowError) as error:
        msg = (
            f"tensor {shown(info.name)} of shape {shown(shape)} cannot be mapped from "
            f"{shown(info.file)} ({reason(error)}). Was the file changed while in use?"
        )
        raise CheckpointError(msg) from None
