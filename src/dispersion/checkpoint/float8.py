"""8-bit floats with their scales: the stored value times its scale, exactly.

An E4M3 or E5M2 value has at most 4 significant bits and a float32, bfloat16, float16 or E8M0 scale
at most 24, so the product is a float64 number and nothing is rounded. It is the weight that 8-bit
kernels multiply with (they apply the scale to products accumulated in float32) and that
`(weight.to(float32) * scale)` rounds to float32. A program that stores the dequantised matrix in
bfloat16 computes with other weights, up to a relative 2⁻⁹ apart: certify such a copy by itself.

Blocks have the stated size and start at the first row and column; the last ones are cut off, as in
the kernels. (Loaders that divide the shape by that of the scale instead differ where it is no
multiple of the block.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dispersion.checkpoint.dtypes import FLOAT8, READABLE, readable, to_float64
from dispersion.checkpoint.float8_config import Layouts, layouts
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from dispersion.checkpoint.tensors import Reader, TensorInfo, Tensors

    Matrix = NDArray[np.float64]

AnyTensors = TypeVar("AnyTensors", bound="Tensors")

# Both spellings multiply; "inv" is the inverse of the factor the weights were divided by.
SUFFIXES = ("_scale_inv", "_scale")
# Further parts of a quantised weight that this reading would miss.
UNREAD = ("_zero_point", "_g_idx", "_scale_2", "_scale_4")
SCALES = (*(dtype for dtype in READABLE if dtype != "F64"), "F8_E8M0")
EVERY_BYTE = np.arange(256, dtype=np.uint8)
REMEDY = "Give the checkpoint before quantisation, or a GGUF file."


@dataclass(frozen=True)
class Parts:
    """What there is to read a checkpoint's 8-bit floats with; the reader gives raw codes."""

    infos: Mapping[str, TensorInfo]
    reader: Reader
    config: Mapping[str, Any] | None


def with_scales(tensors: AnyTensors, config: Mapping[str, Any] | None) -> AnyTensors:
    """The same tensors with every 8-bit float weight multiplied by its scale when it is read.

    Scales become part of the weight and have no name of their own any more. What is wrong with a
    scale is said when its weight is checked or read, so that experts nobody asked for may have any.

    Args:
        tensors: a reader that returns 8-bit floats as stored.
        config: the model's; None for bare tensors, whose blocks have no stated size.
    """
    parts = Parts(tensors.infos, tensors.reader, config)
    weights = [name for name, info in tensors.infos.items() if info.dtype in FLOAT8]
    if not weights:
        return tensors
    scales = {name + suffix for name in weights for suffix in SUFFIXES}
    infos = {name: info for name, info in tensors.infos.items() if name not in scales}
    return replace(
        tensors, infos=infos, reader=partial(_read, parts), checker=partial(_check, parts)
    )


def _check(parts: Parts, name: str) -> None:
    if parts.infos[name].dtype in FLOAT8:
        _scale(parts, name)
    else:
        readable(parts.infos[name].dtype, name)


def _read(parts: Parts, name: str, rows: slice | None) -> NDArray[Any]:
    dtype = FLOAT8.get(parts.infos[name].dtype)
    if dtype is None:
        return parts.reader(name, rows)
    scale, block = _scale(parts, name)
    factors = _factors(parts, scale)
    codes = np.ascontiguousarray(parts.reader(name, rows)).view(np.uint8)
    values = EVERY_BYTE.view(dtype).astype(np.float64)[codes]
    if factors.size == 1:
        values *= factors.reshape(())
        return values
    count, width = parts.infos[name].shape
    rows = rows or slice(0, count)
    # Row i lies in block row i // block: the blocks of the asked rows are spread over them.
    at = np.arange(rows.start, rows.stop) // block[0]
    for start in range(0, width, block[1]):
        values[:, start : start + block[1]] *= factors[at, start // block[1], None]
    return values


def _factors(parts: Parts, scale: str) -> Matrix:
    """A scale's values as a grid (block rows, block columns)."""
    raw = parts.reader(scale, None)
    if parts.infos[scale].dtype == "F8_E8M0":
        values = np.asarray(raw, np.float64)
    else:
        values = to_float64(raw, tensor=scale)
    wrong = ~(np.isfinite(values) & (values > 0))
    if wrong.any():
        index = [int(i) for i in np.argwhere(wrong)[0]]
        place = f"[{', '.join(map(str, index))}]" if index else ""
        value = values[tuple(index)]
        msg = (
            f"tensor {shown(scale)}{place} is {value}; scales must be finite and above 0. "
            "The file is damaged: use another copy."
        )
        raise CheckpointError(msg)
    return values if values.ndim == 2 else values.reshape(-1, 1)


def _scale(parts: Parts, name: str) -> tuple[str, tuple[int, int]]:
    """The name of a weight's scale and the size of a block, judged by shapes alone."""
    info = parts.infos[name]
    found = [name + suffix for suffix in SUFFIXES if name + suffix in parts.infos]
    if not found:
        msg = (
            f"tensor {shown(name)} has dtype {info.dtype} and needs its scale, "
            f"{shown(name + SUFFIXES[0])} or {shown(name + SUFFIXES[1])}. Got neither; "
            f"without it the weights are wrong. {REMEDY}"
        )
        raise UnsupportedError(msg)
    strange = found[1:] + [name + suffix for suffix in UNREAD if name + suffix in parts.infos]
    if strange:
        msg = (
            f"tensor {shown(name)} must have one scale and nothing else. Got "
            f"{shown(strange[0])} beside {shown(found[0])}. {REMEDY}"
        )
        raise UnsupportedError(msg)
    scale = parts.infos[found[0]]
    if scale.dtype not in SCALES:
        msg = (
            f"tensor {shown(scale.name)} has dtype {scale.dtype}; scales are read exactly only "
            f"from {', '.join(SCALES)}. {REMEDY}"
        )
        raise UnsupportedError(msg)
    if len(info.shape) != 2:
        msg = f"tensor {shown(name)} of {info.dtype} must be a matrix. Got shape {info.shape}."
        raise UnsupportedError(msg)
    return scale.name, _block(info, scale, layouts(parts.config))


def _block(info: TensorInfo, scale: TensorInfo, allowed: Layouts) -> tuple[int, int]:
    rows, columns = info.shape
    known: list[tuple[str, Callable[[], bool], tuple[int, int]]] = []
    if allowed.tensor:
        known.append(("(1,)", lambda: scale.shape in ((), (1,), (1, 1)), (rows, columns)))
    if allowed.channel:
        known.append((f"({rows}, 1)", lambda: scale.shape in ((rows,), (rows, 1)), (1, columns)))
    if allowed.block is not None:
        tall, wide = allowed.block
        grid = (-(-rows // tall), -(-columns // wide))
        known.append((f"{grid}", lambda: scale.shape == grid, allowed.block))
    for _, fits, block in known:
        if fits():
            return max(block[0], 1), max(block[1], 1)
    shapes = " or ".join(shape for shape, _, _ in known)
    msg = (
        f"tensor {shown(scale.name)} must have shape {shapes} for weights of shape "
        f"{shown(info.shape)}, as {allowed.stated}. Got {shown(scale.shape)}."
    )
    raise CheckpointError(msg)
