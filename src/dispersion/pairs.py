"""Attention heads from two weight files, one with query rows and one with key rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dispersion.architectures.plans import LayerPlan, Plan
from dispersion.checkpoint import open_tensors, to_float64
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError, CheckpointError
from dispersion.frequencies import power_frequencies
from dispersion.head import BallImage, Head
from dispersion.norms import capped_ball
from dispersion.reach import Reach
from dispersion.rigor import quotient, sqrt_enclosure
from dispersion.rotary import rotary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class PairOptions:
    """What two bare matrices do not say themselves.

    Attributes:
        query_heads: heads stacked in W_Q; 1 by default.
        key_heads: heads stacked in W_K; by default its rows divided by head_dim.
        scale: factor on the logits; 1/√head_dim by default.
        rope: base θ of half-split rotary positions; no rotation by default.
        input_norm: largest 2-norm of an input; without it heads are unbounded.
    """

    query_heads: int | None = None
    key_heads: int | None = None
    scale: float | None = None
    rope: float | None = None
    input_norm: float | None = None


def plan_pair(
    query_path: str | PathLike[str], key_path: str | PathLike[str], options: PairOptions
) -> Plan:
    """Plan one layer whose heads read rows of two matrices, each [out, in].

    Raises:
        ArgumentError: shapes or options that do not fit.
        CheckpointError: a file is unreadable, or holds no single matrix.
        UnsafeFileError: a file is a pickle.
    """
    query, key = _matrix(query_path, "W_Q"), _matrix(key_path, "W_K")
    query_heads, key_heads, head_dim = _heads(query.shape[0], key.shape[0], options)
    if query.shape[1] != key.shape[1]:
        msg = (
            "W_Q and W_K must read inputs of one width, layout [out, in]. "
            f"Got {query.shape[1]} and {key.shape[1]} columns; transpose one that is [in, out]."
        )
        raise ArgumentError(msg)
    width = int(query.shape[1])
    scale = _scale(options.scale, head_dim)
    turn = None
    if options.rope is not None:
        if not (math.isfinite(options.rope) and options.rope > 0) or head_dim % 2:
            msg = (
                "--rope needs a positive base and an even head_dim. "
                f"Got {options.rope} and {head_dim}."
            )
            raise ArgumentError(msg)
        turn = rotary(power_frequencies(options.rope, head_dim), head_dim)
    radius = options.input_norm
    reach = None if radius is None else Reach(width, radius)

    def heads() -> Iterator[tuple[int, int, Head]]:
        group = query_heads // key_heads
        for kv_head in range(key_heads):
            keys = _ball(key, kv_head, head_dim, radius)
            for head in range(kv_head * group, (kv_head + 1) * group):
                queries = _ball(query, head, head_dim, radius)
                yield head, kv_head, Head(queries, keys, scale, turn, reach=reach)

    facts: dict[str, Any] = {
        "model_type": None,
        "layers": 1,
        "query_heads": query_heads,
        "key_heads": key_heads,
        "head_dim": head_dim,
        "width": width,
        "dtype": "float64",
        "max_positions": None,
        "qk_norm": "none",
        "rope_type": None if turn is None else turn.kind,
    }
    layer = LayerPlan("", 0, query_heads, key_heads, head_dim, heads)
    return Plan("two weight files", facts, (layer,), (), ())


def _matrix(path: str | PathLike[str], role: str) -> NDArray[np.float64]:
    tensors = open_tensors(path)
    if len(tensors.names) != 1:
        found = ", ".join(tensors.names[:5]) or "none"
        msg = f"{path} ({role}) must hold exactly one array. Got {len(tensors.names)}: {found}."
        raise CheckpointError(msg)
    name = tensors.names[0]
    shape = tensors.info(name).shape
    if len(shape) != 2 or 0 in shape:
        msg = f"{path} ({role}) must hold a matrix [out, in]. Got an array of shape {shape}."
        raise CheckpointError(msg)
    return to_float64(tensors.read(name), tensor=name)


def _heads(query_rows: int, key_rows: int, options: PairOptions) -> tuple[int, int, int]:
    query_heads = options.query_heads or 1
    head_dim, rest = divmod(query_rows, query_heads)
    if rest:
        msg = f"--query-heads must divide the rows of W_Q. Got {query_heads} and {query_rows}."
        raise ArgumentError(msg)
    key_heads = options.key_heads or max(1, key_rows // head_dim)
    if key_heads * head_dim != key_rows:
        msg = (
            f"W_K must have head_dim = {head_dim} rows per head, as W_Q has with {query_heads} "
            f"query heads. Got {key_rows} rows for {key_heads}; "
            "set --query-heads and --key-heads."
        )
        raise ArgumentError(msg)
    if query_heads % key_heads:
        msg = f"query heads must be a multiple of key heads. Got {query_heads} and {key_heads}."
        raise ArgumentError(msg)
    return query_heads, key_heads, head_dim


def _scale(scale: float | None, head_dim: int) -> Enclosure:
    if scale is None:
        return quotient(1, sqrt_enclosure(head_dim))
    if not (math.isfinite(scale) and scale > 0):
        msg = f"--scale must be positive and finite. Got {scale}."
        raise ArgumentError(msg)
    return Enclosure.exact(scale)


def _ball(
    matrix: NDArray[np.float64], head: int, head_dim: int, radius: float | None
) -> BallImage | None:
    if radius is None:
        return None
    return capped_ball(matrix[head * head_dim : (head + 1) * head_dim], radius=radius)
