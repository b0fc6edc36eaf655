"""GGUF files as checkpoints: names, rows and configuration as Hugging Face has them.

Weights are dequantised to float32 with the `gguf` package's reference formulas: those float32
numbers are what a certificate speaks of. The package is imported only when such a file is opened.
"""

from __future__ import annotations

import math
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.checkpoint.gguf_config import translate
from dispersion.checkpoint.gguf_file import Stored, parse
from dispersion.checkpoint.gguf_names import hugging_face_name
from dispersion.checkpoint.safetensors import map_bytes
from dispersion.checkpoint.tensors import Checkpoint, TensorInfo
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

ROPE_FACTORS = "rope_freqs.weight"
ROTATED = re.compile(r"model\.layers\.\d+\.self_attn\.(q|k)_proj\.(weight|bias)", re.ASCII)
INTEGERS = ("I8", "I16", "I32", "I64")


def open_gguf(path: Path, source: str) -> Checkpoint:
    """A GGUF file of the architecture `llama` or `gemma3`.

    Rows of `llama` query and key projections, which the format permutes so that rotated pairs are
    neighbours, come back in the half-split order of Hugging Face. Norm weights are the multiplier
    itself, also for Gemma: `gain_is_multiplier` says so.

    Raises:
        UnsupportedError: another architecture, version, byte order, or RoPE setting.
        CheckpointError: unreadable, truncated or malformed.
    """
    metadata, tensors = parse(path)
    architecture = str(metadata.get("general.architecture"))
    factors = None
    if ROPE_FACTORS in tensors:
        stored = tensors[ROPE_FACTORS]
        info = _info(stored.name, stored, path)
        factors = [float(f) for f in _dequantised(stored, info, None).reshape(-1)]
    bias = any(name.endswith(".attn_q.bias") for name in tensors)
    config = translate(metadata, str(path), rope_factors=factors, bias=bias)
    renamed: dict[str, Stored] = {}
    for name, stored in tensors.items():
        if name == ROPE_FACTORS:  # now part of the configuration
            continue
        spelled = hugging_face_name(name, architecture)
        if spelled in renamed:
            msg = (
                f"{shown(path)}: {shown(name)} and {shown(renamed[spelled].name)} mean one tensor."
            )
            raise CheckpointError(msg)
        renamed[spelled] = stored
    infos = {name: _info(name, stored, path) for name, stored in renamed.items()}
    heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
    permuted = heads if architecture == "llama" else {}
    reader = partial(_read, renamed, infos, permuted, config["head_dim"])
    return Checkpoint(source, "gguf", infos, reader, config, gain_is_multiplier=True)


def _read(
    tensors: dict[str, Stored],
    infos: dict[str, TensorInfo],
    permuted: dict[str, int],
    head_dim: int,
    name: str,
    rows: slice | None,
) -> NDArray[Any]:
    found = ROTATED.fullmatch(name)
    if found and found[1] in permuted:
        return _half_split(tensors[name], infos[name], rows, permuted[found[1]], head_dim)
    return _dequantised(tensors[name], infos[name], rows)


def _info(name: str, stored: Stored, path: Path) -> TensorInfo:
    return TensorInfo(name, stored.type, stored.shape, str(path), stored.nbytes)


def _dequantised(stored: Stored, info: TensorInfo, rows: slice | None) -> NDArray[Any]:
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    shape, offset = stored.shape, stored.offset
    if rows is not None and len(shape) == 1:
        return _dequantised(stored, info, None)[rows]
    if rows is not None:
        offset += rows.start * math.prod(shape[1:-1]) * stored.row_bytes
        shape = (rows.stop - rows.start, *shape[1:])
    if stored.type in INTEGERS:
        msg = f"tensor {shown(info.name)} holds {stored.type} integers, which are not weights."
        raise UnsupportedError(msg)
    if stored.type in ("F32", "F64") or 0 in shape:
        return map_bytes(info, offset, shape, np.dtype("<f8" if stored.type == "F64" else "<f4"))
    packed = (*shape[:-1], stored.row_bytes)
    raw = map_bytes(info, offset, packed, np.dtype(np.uint8))
    try:
        with np.errstate(all="ignore"):  # what is not finite is reported with its index later
            values = dequantize(np.ascontiguousarray(raw), GGMLQuantizationType[stored.type])
    except NotImplementedError:
        msg = (
            f"tensor {shown(info.name)} is quantised as {stored.type}, which cannot be read. "
            "Requantise the model to Q8_0 or F16."
        )
        raise UnsupportedError(msg) from None
    return np.asarray(values, np.float32).reshape(shape)


def _half_split(
    stored: Stored, info: TensorInfo, rows: slice | None, heads: int, head_dim: int
) -> NDArray[Any]:
    count = stored.shape[0]
    if head_dim % 2 or count != heads * head_dim:
        msg = (
            f"tensor {shown(info.name)} must have heads x head_dim = {heads} x {head_dim} rows, "
            f"head_dim even. Got {count} rows."
        )
        raise CheckpointError(msg)
    rows = rows or slice(0, count)
    # Whole heads are read, since a head's rows are shuffled among themselves.
    first, last = rows.start // head_dim, -(-rows.stop // head_dim)
    values = _dequantised(stored, info, slice(first * head_dim, last * head_dim))
    pairs = values.reshape(last - first, head_dim // 2, 2, *stored.shape[1:])
    ordered = pairs.swapaxes(1, 2).reshape(values.shape)
    return ordered[rows.start - first * head_dim : rows.stop - first * head_dim]
