"""Attention heads from two weight files, one with query rows and one with key rows."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dispersion.auditing import provenance
from dispersion.checking import Place, check_head
from dispersion.checkpoint import open_tensors, to_float64
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError, CheckpointError
from dispersion.frequencies import power_frequencies
from dispersion.head import BallImage, Head
from dispersion.norms import capped_ball
from dispersion.reach import Reach
from dispersion.results import Audit
from dispersion.rigor import quotient, sqrt_enclosure
from dispersion.rotary import Rotary, rotary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    import numpy as np
    from numpy.typing import NDArray

    from dispersion.checkpoint import Tensors
    from dispersion.verdict import Target


_NO_CAP = "two weight files do not say how large inputs are; --input-norm R states their 2-norm"


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


def audit_pair(
    query_path: str | PathLike[str],
    key_path: str | PathLike[str],
    targets: Sequence[Target],
    options: PairOptions,
    *,
    heads: frozenset[int] | None = None,
    offsets: str = "free",
    budget: float | None = None,
) -> Audit:
    """Certified answers for the heads that read rows of two matrices, each [out, in].

    Args:
        query_path: a .npy, .npz or .safetensors file that holds W_Q alone.
        key_path: the same for W_K.
        targets: the questions.
        options: what the matrices do not say themselves.
        heads: only these query heads; all by default.
        offsets: "free" (any rotation angles) or "exact" (the real offsets).
        budget: seconds that "exact" may take in all; past it heads get the free bound.

    Raises:
        ArgumentError: shapes or options that do not fit.
        CheckpointError: a file is unreadable, or holds no single matrix.
        UnsafeFileError: a file is a pickle.
    """
    started = time.perf_counter()
    # Everything that shapes can tell comes before any values: those may be huge or compressed.
    query_file, (query_rows, width) = _matrix(query_path, "W_Q")
    key_file, (key_rows, key_width) = _matrix(key_path, "W_K")
    query_heads, key_heads, head_dim = _heads(query_rows, key_rows, options)
    if width != key_width:
        msg = (
            "W_Q and W_K must read inputs of one width, layout [out, in]. "
            f"Got {width} and {key_width} columns; transpose one that is [in, out]."
        )
        raise ArgumentError(msg)
    if heads is not None and max(heads) >= query_heads:
        msg = f"heads must lie in 0..{query_heads - 1}. Got {max(heads)}."
        raise ArgumentError(msg)
    scale, turn = _scale(options.scale, head_dim), _turn(options.rope, head_dim)
    radius = options.input_norm
    reach = None if radius is None else Reach(width, radius)
    query, key = _values(query_file), _values(key_file)
    keys = [_ball(key, index, head_dim, radius) for index in range(key_heads)]
    results = []
    for index in sorted(range(query_heads) if heads is None else heads):
        kv_head = index // (query_heads // key_heads)
        queries = _ball(query, index, head_dim, radius)
        head = Head(queries, keys[kv_head], scale, turn, reach=reach)
        rest = None if budget is None else max(0.0, budget - (time.perf_counter() - started))
        place = Place("", 0, index, kv_head)
        found = check_head(head, targets, place=place, offsets=offsets, budget=rest)
        results.append(found if head.bounded else replace(found, notes=(_NO_CAP,)))
    return Audit(
        source=f"{query_path} {key_path}",
        model={
            "layers": 1,
            "query_heads": query_heads,
            "key_heads": key_heads,
            "head_dim": head_dim,
            "width": width,
            "rope_type": None if turn is None else turn.kind,
        },
        targets=tuple(targets),
        heads=tuple(results),
        provenance=provenance(started, offsets, 1),
    )


def _matrix(path: str | PathLike[str], role: str) -> tuple[Tensors, tuple[int, int]]:
    tensors = open_tensors(path)
    if len(tensors.names) != 1:
        found = ", ".join(tensors.names[:5]) or "none"
        msg = f"{path} ({role}) must hold exactly one array. Got {len(tensors.names)}: {found}."
        raise CheckpointError(msg)
    shape = tensors.info(tensors.names[0]).shape
    if len(shape) != 2 or 0 in shape:
        msg = f"{path} ({role}) must hold a matrix [out, in]. Got an array of shape {shape}."
        raise CheckpointError(msg)
    return tensors, (shape[0], shape[1])


def _values(tensors: Tensors) -> NDArray[np.float64]:
    name = tensors.names[0]
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


def _turn(theta: float | None, head_dim: int) -> Rotary | None:
    if theta is None:
        return None
    if not (math.isfinite(theta) and theta > 0) or head_dim % 2:
        msg = f"--rope needs a positive base and an even head_dim. Got {theta} and {head_dim}."
        raise ArgumentError(msg)
    return rotary(power_frequencies(theta, head_dim), head_dim)


def _ball(
    matrix: NDArray[np.float64], head: int, head_dim: int, radius: float | None
) -> BallImage | None:
    if radius is None:
        return None
    return capped_ball(matrix[head * head_dim : (head + 1) * head_dim], radius=radius)
