"""Stored number formats, and the exact way from the readable ones to float64.

float16, bfloat16 and float32 values are all float64 values, so the conversion rounds nothing and a
certificate computed from the result speaks of the weights as stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from dispersion.checkpoint.text import shown
from dispersion.errors import ArgumentError, CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Bits per element of every dtype the safetensors format knows (safetensors 0.8).
BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "F16": 16,
    "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
READABLE: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": BFLOAT16,
}
# Codes that mean nothing without a separate scale; `float8` multiplies the two.
FLOAT8: dict[str, np.dtype[Any]] = {
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
}
STORED = READABLE | FLOAT8 | {"F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu)}
CHUNK = 1 << 16  # elements: half a mebibyte of float64, which a second-level cache holds


def readable(dtype: str, tensor: str) -> np.dtype[Any]:
    """The NumPy dtype of a safetensors dtype whose values are plain real numbers.

    Raises:
        UnsupportedError: integers, booleans, complex numbers and formats that mean nothing without
            a separate scale (fp8, fp6, fp4).
    """
    if dtype not in READABLE:
        msg = (
            f"tensor {shown(tensor)} has dtype {dtype}; weights are read exactly only from "
            f"{', '.join(READABLE)}. Dequantise the checkpoint first."
        )
        raise UnsupportedError(msg)
    return READABLE[dtype]


def stored(dtype: str, tensor: str) -> np.dtype[Any]:
    """The NumPy dtype of values as they lie in the file, 8-bit floats without their scale too.

    Raises:
        UnsupportedError: as `readable`, but for 8-bit floats.
    """
    return STORED[dtype] if dtype in STORED else readable(dtype, tensor)


def to_float64(
    array: NDArray[Any],
    *,
    tensor: str,
    out: NDArray[np.float64] | None = None,
    first_row: int = 0,
) -> NDArray[np.float64]:
    """The same numbers in float64, exactly, checked to be finite; **tight** (no rounding).

    Args:
        array: float16, bfloat16, float32 or float64, any shape.
        tensor: name used in messages.
        out: float64, C-contiguous, same shape: filled and returned instead of a new array.
        first_row: where `array` starts in the tensor, so that a reported index is the tensor's.

    Returns:
        A C-contiguous float64 array of the same shape that shares no memory with `array`.

    Raises:
        CheckpointError: a value is not finite; names the tensor, the index and the value.
        UnsupportedError: another dtype.
        ArgumentError: `out` does not fit.
    """
    plain = array.dtype.kind == "f" and array.dtype.itemsize in (2, 4, 8)
    if not plain and array.dtype != BFLOAT16:
        msg = (
            f"tensor {shown(tensor)} must hold float16, bfloat16, float32 or float64. "
            f"Got {array.dtype}; convert it first."
        )
        raise UnsupportedError(msg)
    if out is None:
        out = np.empty(array.shape, np.float64)
    elif out.dtype != np.float64 or out.shape != array.shape or not out.flags.carray:
        msg = (
            f"out must be a writeable C-contiguous float64 array of shape {array.shape}. "
            f"Got {out.dtype} of shape {out.shape}."
        )
        raise ArgumentError(msg)
    source, target = np.ascontiguousarray(array).reshape(-1), out.reshape(-1)
    finite = True
    with np.errstate(invalid="ignore"):  # a signalling nan; it is reported with its index below
        for start in range(0, source.size, CHUNK):  # checked while still in the cache
            image = target[start : start + CHUNK]
            np.copyto(image, source[start : start + CHUNK])
            finite = finite and _all_finite(image)
    if not finite:
        raise CheckpointError(_where_not_finite(out, tensor, first_row))
    return out


def _all_finite(values: NDArray[np.float64]) -> bool:
    # An infinity or nan survives every sum, so a finite sum settles it without a boolean array;
    # a sum of finite float64 values can overflow, and only then is each value looked at.
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(np.add.reduce(values))
    return total - total == 0 or bool(np.isfinite(values).all())


def _where_not_finite(values: NDArray[np.float64], tensor: str, first_row: int) -> str:
    flat = int(np.argmin(np.isfinite(values)))
    index = [int(i) for i in np.unravel_index(flat, values.shape)]
    value = values[tuple(index)]
    if index:
        index[0] += first_row
    place = f"[{', '.join(map(str, index))}]" if index else ""
    return (
        f"tensor {shown(tensor)}{place} is {value}; weights must be finite. "
        "The file is damaged or the model diverged: use another copy or an earlier step."
    )
