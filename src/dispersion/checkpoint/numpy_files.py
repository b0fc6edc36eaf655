"""NumPy's .npy and .npz files, without pickles."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from functools import partial
from tokenize import TokenError
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from dispersion.checkpoint.tensors import TensorInfo, Tensors
from dispersion.checkpoint.text import reason, shown
from dispersion.errors import CheckpointError, UnsafeFileError, UnsupportedError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

FLOATS = {2: "F16", 4: "F32", 8: "F64"}
LONGEST_HEADER = 10_000  # bytes, as NumPy itself has it
MOST_AXES = 64
# Weights hardly shrink: what grows past the one by more than the other is a bomb.
LARGEST_SQUEEZED, MOST_SQUEEZED = 1 << 30, 100
MALFORMED = (
    OSError, ValueError, EOFError, KeyError, RuntimeError, NotImplementedError, OverflowError,
    SyntaxError, TypeError, MemoryError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def open_npy(path: Path) -> Tensors:
    """The single array of a .npy file, under the file's stem as its name.

    Raises:
        UnsafeFileError: an array of Python objects.
        CheckpointError: unreadable or malformed.
    """
    try:
        with path.open("rb") as file:
            dtype, shape = _header(file)
            stored = path.stat().st_size - file.tell()
    except MALFORMED as error:
        raise _malformed(path, error) from None
    info = _info(path.stem, dtype, shape, path)
    _check_length(f"{shown(path)}", info, stored)

    return Tensors(str(path), "npy", {info.name: info}, partial(_read_npy, path, dtype))


def _read_npy(path: Path, dtype: np.dtype[Any], name: str, rows: slice | None) -> NDArray[Any]:
    _check_float(name, dtype)
    try:
        array = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except MALFORMED as error:
        raise _malformed(path, error) from None
    return array if rows is None else array[rows]


def open_npz(path: Path) -> Tensors:
    """The arrays of a .npz file, under their names in it.

    Raises:
        UnsafeFileError: an array of Python objects.
        CheckpointError: unreadable or malformed.
    """
    infos: dict[str, TensorInfo] = {}
    dtypes: dict[str, np.dtype[Any]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if not member.filename.endswith(".npy"):
                    msg = f"member {shown(member.filename)} is not an array"
                    raise ValueError(msg)
                name = member.filename.removesuffix(".npy")
                _check_packing(member, path)
                if name in infos:
                    msg = f"the array {shown(name)} occurs twice"
                    raise ValueError(msg)
                with archive.open(member) as file:  # inflates no more than the header
                    dtypes[name], shape = _header(file)
                    stored = member.file_size - file.tell()
                infos[name] = _info(name, dtypes[name], shape, path)
                _check_length(f"{shown(path)}: array {shown(name)}", infos[name], stored)
    except MALFORMED as error:
        raise _malformed(path, error) from None

    return Tensors(str(path), "npz", infos, partial(_read_npz, path, dtypes))


def _read_npz(
    path: Path, dtypes: dict[str, np.dtype[Any]], name: str, rows: slice | None
) -> NDArray[Any]:
    _check_float(name, dtypes[name])
    try:
        with np.load(path, allow_pickle=False) as archive:
            array = np.asarray(archive[name])
    except MALFORMED as error:
        raise _malformed(path, error) from None
    return array if rows is None else array[rows]


def _check_packing(member: zipfile.ZipInfo, path: Path) -> None:
    """Refuse what no weights need and what could fill the memory.

    Other methods than NumPy's own take memory as their headers ask for it, before a byte is out.
    """
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        msg = (
            f"{shown(path)}: member {shown(member.filename)} must be stored or deflated, as NumPy "
            f"does it. Got method {member.compress_type}; save it with numpy.savez."
        )
        raise CheckpointError(msg)
    size, packed = member.file_size, member.compress_size
    if size > LARGEST_SQUEEZED and size > MOST_SQUEEZED * packed:
        msg = (
            f"{shown(path)}: member {shown(member.filename)} would inflate {packed} bytes to "
            f"{size}, more than weights do. Save it with numpy.savez."
        )
        raise CheckpointError(msg)


def _header(file: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Dtype and shape; leaves the file at the first byte of the data."""
    start = file.read(8)
    if start[:6] != b"\x93NUMPY":
        msg = "it does not start with the bytes of a NumPy array" if start else "it is empty"
        raise ValueError(msg)
    version = (start[6], start[7]) if len(start) == 8 else (0, 0)
    width = {(1, 0): 2, (2, 0): 4, (3, 0): 4}.get(version)
    if width is None:
        msg = "its version of the format is unknown"
        raise ValueError(msg)
    count = file.read(width)
    length = int.from_bytes(count, "little")
    if length > LONGEST_HEADER:  # before it is read: a zip inflates it
        msg = f"its header may have at most {LONGEST_HEADER} bytes, got {length}"
        raise ValueError(msg)
    raw = file.read(length)
    if len(count) < width or len(raw) < length:
        msg = "it ends inside its header"
        raise ValueError(msg)
    reader = npy.read_array_header_1_0 if width == 2 else npy.read_array_header_2_0
    try:
        shape, _, dtype = reader(io.BytesIO(count + raw))
    except (*MALFORMED, TokenError):  # NumPy tokenizes a header that does not parse
        msg = "its header must give descr, fortran_order and shape as NumPy writes them"
        raise ValueError(msg) from None
    sizes = all(type(n) is int and 0 <= n < 2**63 for n in shape)
    if len(shape) > MOST_AXES or not sizes:
        msg = f"no array can have its shape {shown(shape)}"
        raise ValueError(msg)
    return dtype, shape


def _check_length(where: str, info: TensorInfo, stored: int) -> None:
    if stored != info.nbytes:
        what = "is truncated" if stored < info.nbytes else "has bytes after its array"
        msg = (
            f"{where} {what}: shape {shown(info.shape)} of {info.dtype} takes "
            f"{shown(info.nbytes)} bytes. Got {stored}; save it again."
        )
        raise CheckpointError(msg)


def _info(name: str, dtype: np.dtype[Any], shape: tuple[int, ...], path: Path) -> TensorInfo:
    if dtype.hasobject:
        msg = (
            f"{shown(path)}: array {shown(name)} holds Python objects, which NumPy stores as a "
            "pickle, so it is not opened. Save it with a float dtype."
        )
        raise UnsafeFileError(msg)
    word = FLOATS.get(dtype.itemsize, str(dtype)) if dtype.kind == "f" else str(dtype)
    return TensorInfo(name, word, shape, str(path), math.prod(shape) * dtype.itemsize)


def _check_float(name: str, dtype: np.dtype[Any]) -> None:
    if dtype.kind != "f" or dtype.itemsize not in FLOATS:
        msg = (
            f"array {shown(name)} has dtype {dtype}; weights are read exactly only from "
            "float16, float32 and float64. Save it as one of these."
        )
        raise UnsupportedError(msg)


def _malformed(path: Path, error: Exception) -> CheckpointError:
    kind = "zip archive of arrays" if path.suffix.lower() == ".npz" else "NumPy array file"
    return CheckpointError(f"{shown(path)} is not a readable {kind} ({reason(error)}).")
