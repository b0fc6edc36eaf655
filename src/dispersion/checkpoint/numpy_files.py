"""NumPy's .npy and .npz files, without pickles."""

from __future__ import annotations

import math
import zipfile
import zlib
from functools import partial
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
            complete = path.stat().st_size - file.tell() >= math.prod(shape) * dtype.itemsize
    except MALFORMED as error:
        raise _malformed(path, error) from None
    info = _info(path.stem, dtype, shape, path)
    if not complete:
        msg = f"{shown(path)} is truncated: shape {shape} of {dtype} needs {info.nbytes} bytes."
        raise CheckpointError(msg)

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
            for member in archive.namelist():
                if not member.endswith(".npy"):
                    msg = f"member {shown(member)} is not an array"
                    raise ValueError(msg)
                name = member.removesuffix(".npy")
                with archive.open(member) as file:
                    dtypes[name], shape = _header(file)
                infos[name] = _info(name, dtypes[name], shape, path)
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


def _header(file: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    version = npy.read_magic(file)
    reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = reader(file)
    return dtype, shape


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
