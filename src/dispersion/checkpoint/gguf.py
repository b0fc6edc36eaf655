"""GGUF files as checkpoints: names, rows and configuration as Hugging Face has them.

Weights are dequantised to float32 with the `gguf` package's reference formulas: those float32
numbers are what a certificate speaks of. The package is imported only when such a file is opened.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.checkpoint.gguf_config import find_architecture, translate
from dispersion.checkpoint.gguf_file import Stored, parse
from dispersion.checkpoint.gguf_fused import split
from dispersion.checkpoint.gguf_latent import Joined, joined
from dispersion.checkpoint.gguf_metadata import WIDEST_HEAD, Contents
from dispersion.checkpoint.gguf_parts import read_parts
from dispersion.checkpoint.gguf_rope import FREQS, LONG, SHORT
from dispersion.checkpoint.gguf_rows import Order, runs
from dispersion.checkpoint.gguf_sections import ROWS
from dispersion.checkpoint.regular import regular_size
from dispersion.checkpoint.safetensors import map_bytes
from dispersion.checkpoint.tensors import Checkpoint, TensorInfo
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from dispersion.checkpoint.gguf_architecture import Architecture
    from dispersion.checkpoint.gguf_file import Parsed

    # Bytes of a tensor as an array: the tensor, its first byte, shape and dtype.
    Bytes = Callable[[Stored, int, tuple[int, ...], np.dtype[Any]], NDArray[Any]]

FACTORS = tuple(f"{name}.weight" for name in (FREQS, LONG, SHORT))
INTEGERS = ("I8", "I16", "I32", "I64")


def open_gguf(path: Path, source: str) -> Checkpoint:
    """A GGUF file of one of the architectures in `gguf_families`, with its other parts if any.

    Raises:
        UnsupportedError: another architecture, version, byte order, or setting of attention.
        CheckpointError: unreadable, truncated or malformed, or a part is missing.
    """

    def read(name: str, why: str) -> Parsed:
        file = path.with_name(name)
        regular_size(file, f"is missing; {why}. Fetch it too.")
        return parse(file)

    parsed = read_parts(path.name, lambda name: str(path.with_name(name)), read)
    return from_header(parsed, str(path), source, _mapped)


def from_header(
    parsed: Parsed,
    file: str,
    source: str,
    mapped: Bytes,
    origin: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """The checkpoint that metadata and tensor directory describe.

    Rows that converters reorder come back in the order of Hugging Face. Norm weights are the
    multiplier itself, also where Hugging Face files store multiplier - 1: `gain_is_multiplier`
    says so.

    Args:
        parsed: what the header says, of all parts.
        file: named in messages.
        source: what the caller gave.
        mapped: bytes of a tensor.
        origin: as a Checkpoint has it.

    Raises:
        UnsupportedError: another architecture, or setting of attention.
        CheckpointError: malformed.
    """
    metadata, tensors = parsed
    _, architecture = find_architecture(metadata, file)
    _check_tensors(tensors, architecture, file)
    factors = {
        name.removesuffix(".weight"): _values(tensors[name], mapped)
        for name in FACTORS
        if name in tensors
    }
    shapes = {name: stored.shape for name, stored in tensors.items()}
    contents = Contents(shapes, factors)
    config = translate(metadata, file, contents)
    names = architecture.names_in(contents)
    order = Order(
        config.pop(ROWS, architecture.rows),
        {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]},
        config["head_dim"],
        int(config["head_dim"] * config.get("partial_rotary_factor", 1.0)),
    )
    renamed: dict[str, Stored] = {}
    for name, stored in tensors.items():
        if name in FACTORS:  # now part of the configuration
            continue
        spelled = names.hugging_face(name)
        if spelled in renamed:
            msg = (
                f"{shown(file)}: {shown(name)} and {shown(renamed[spelled].name)} mean one tensor."
            )
            raise CheckpointError(msg)
        renamed[spelled] = stored
    if architecture.fused:
        split(renamed, order.heads["q"], order.heads["k"], order.head_dim)
    parts = joined(renamed, config["num_attention_heads"]) if architecture.latent else {}
    infos = {name: _info(name, stored, order) for name, stored in renamed.items()}
    infos |= {name: both.info(name) for name, both in parts.items()}
    reader = partial(_read, renamed, parts, order, mapped)
    return Checkpoint(source, "gguf", infos, reader, config, True, dict(origin or {}))


def _check_tensors(tensors: Mapping[str, Stored], architecture: Architecture, file: str) -> None:
    """Refuse tensors that act on attention or its input in ways the architecture does not have."""
    for name in tensors:
        stem = name.rpartition(".")[0]
        known = name not in FACTORS or stem in architecture.factors
        strange = stem.startswith(("token_embd_", "position_embd", "per_layer_"))
        fused = ".attn_qkv." in name and "attn_qkv" not in architecture.names.layer
        if not known or fused or (strange and stem not in architecture.names.whole):
            msg = (
                f"{shown(file)} holds the tensor {shown(name)}, which its architecture has no "
                "place for here. Give the model's safetensors files."
            )
            raise UnsupportedError(msg)


def _values(stored: Stored, mapped: Bytes) -> list[float]:
    if math.prod(stored.shape) > WIDEST_HEAD:
        msg = (
            f"{shown(stored.file)}: {shown(stored.name)} must have one number for each rotated "
            "pair."
        )
        raise UnsupportedError(msg)
    values = _dequantised(stored, stored.name, mapped, None)
    return [float(value) for value in values.reshape(-1)]


def _mapped(
    stored: Stored, start: int, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> NDArray[Any]:
    info = TensorInfo(stored.name, stored.type, stored.shape, stored.file, stored.nbytes)
    return map_bytes(info, stored.offset + start, shape, dtype)


def _read(
    tensors: dict[str, Stored],
    parts: dict[str, Joined],
    order: Order,
    mapped: Bytes,
    name: str,
    rows: slice | None,
) -> NDArray[Any]:
    if name in parts:
        return parts[name].read(lambda part, some: _dequantised(part, name, mapped, some), rows)
    stored = tensors[name]
    if order.transposed(name):
        whole = _dequantised(stored, name, mapped, None).T
        return whole if rows is None else whole[rows]
    if (columns := order.columns(name, stored.shape)) is not None:
        whole = _dequantised(stored, name, mapped, None)[:, columns]
        return whole if rows is None else whole[rows]
    if 0 in stored.shape:  # however many rows of nothing there are
        return _dequantised(stored, name, mapped, rows)
    count = stored.shape[0]
    at = order.of_file(name, count, rows or slice(0, count))
    if at is None:
        return _dequantised(stored, name, mapped, rows)
    spans, place = runs(at)
    read = [_dequantised(stored, name, mapped, span) for span in spans]
    if not read:
        return _dequantised(stored, name, mapped, slice(0, 0))
    return np.concatenate(read)[place]


def _info(name: str, stored: Stored, order: Order) -> TensorInfo:
    shape = stored.shape[::-1] if order.transposed(name) else stored.shape
    return TensorInfo(name, stored.type, shape, stored.file, stored.nbytes)


def _dequantised(stored: Stored, name: str, mapped: Bytes, rows: slice | None) -> NDArray[Any]:
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    shape, start = stored.shape, 0
    if rows is not None and len(shape) == 1:
        return _dequantised(stored, name, mapped, None)[rows]
    if rows is not None:
        start = rows.start * math.prod(shape[1:-1]) * stored.row_bytes
        shape = (rows.stop - rows.start, *shape[1:])
    if stored.type in INTEGERS:
        msg = f"tensor {shown(name)} holds {stored.type} integers, which are not weights."
        raise UnsupportedError(msg)
    if stored.type in ("F32", "F64") or 0 in shape:
        return mapped(stored, start, shape, np.dtype("<f8" if stored.type == "F64" else "<f4"))
    packed = (*shape[:-1], stored.row_bytes)
    raw = mapped(stored, start, packed, np.dtype(np.uint8))
    try:
        with np.errstate(all="ignore"):  # what is not finite is reported with its index later
            values = dequantize(np.ascontiguousarray(raw), GGMLQuantizationType[stored.type])
    except NotImplementedError:
        msg = (
            f"tensor {shown(name)} is quantised as {stored.type}, which cannot be read. "
            "Requantise the model to Q8_0 or F16."
        )
        raise UnsupportedError(msg) from None
    return np.asarray(values, np.float32).reshape(shape)
