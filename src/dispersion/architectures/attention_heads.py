"""The heads of an attention layer, read one after the other and brought to normal form."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures.head_rows import (
    bias_of_head,
    outputs_of,
    rows_of_head,
    vectors_of,
)
from dispersion.architectures.normed_directions import Directions
from dispersion.checkpoint import to_float64
from dispersion.clipping import clipped_head
from dispersion.head import BallImage, Head
from dispersion.mapped import mapped_ball
from dispersion.norms import projection_ball, qk_norm_ball
from dispersion.reach import QKNorm, Reach
from dispersion.rows import scaled_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from dispersion.architectures.attention import Attention, Norm, Projection, Through
    from dispersion.checkpoint import Checkpoint

    Vector = NDArray[np.float64]
    Vectors = tuple[Vector | None, Vector | None]


def heads(checkpoint: Checkpoint, attention: Attention) -> Iterator[tuple[int, int, Head]]:
    """Yield (head, kv_head, Head), reading one head's rows at a time.

    Raises:
        CheckpointError: a weight is not finite; the message names the tensor and the index.
    """
    norm = vectors_of(checkpoint, attention.input_norm)
    before_keys = attention.key_input or attention.input_norm
    key_side = norm if attention.key_input is None else vectors_of(checkpoint, before_keys)
    sinks = (
        None
        if attention.sinks is None
        else to_float64(checkpoint.read(attention.sinks), tensor=attention.sinks)
    )
    group = attention.query.heads // attention.key.heads
    directions = Directions(checkpoint, attention, (norm, key_side))
    for kv_head in range(attention.key.heads):
        key = _ball(checkpoint, attention, attention.key, kv_head, before_keys, key_side)
        key_norm = _qk_norm(checkpoint, attention, attention.key, kv_head)
        for head in range(kv_head * group, (kv_head + 1) * group):
            built = Head(
                query=_query(checkpoint, attention, head, norm),
                key=key,
                scale=attention.scale,
                rotary=attention.rotary,
                soft_cap=attention.soft_cap,
                sink=None if sinks is None else float(sinks[head]),
                window=attention.window,
                chunked=attention.chunked,
                causal=attention.causal,
                self_attention=attention.key_input is None or attention.shares_keys,
                bias=None if attention.position_bias is None else attention.position_bias(head),
                growth=attention.growth,
                reach=_reach(
                    checkpoint,
                    attention,
                    (norm, key_side),
                    _qk_norm(checkpoint, attention, attention.query, head),
                    key_norm,
                )
                if attention.known_inputs
                else None,
            )
            built = directions.narrow(built, head, kv_head)
            if attention.clip is not None:
                built = clipped_head(built, attention.clip)
            yield head, kv_head, built
        del key


def _ball(
    checkpoint: Checkpoint,
    attention: Attention,
    side: Projection,
    head: int,
    before: Norm | None,
    vectors: Vectors,
) -> BallImage | None:
    # Read even where a QK norm makes the rows immaterial, so that a nan in them is found.
    weight = rows_of_head(checkpoint, attention, side, head)
    bias = bias_of_head(checkpoint, attention, side, head)
    if side.norm is not None:
        gain, norm_bias = vectors_of(checkpoint, side.norm.of_head(head))
        if side.norm.stacked:
            gain = None if gain is None else gain[head]
            norm_bias = None if norm_bias is None else norm_bias[head]
        start = head * attention.head_dim if attention.layerwise else 0
        return qk_norm_ball(
            gain,
            kind=side.norm.kind,
            head_dim=attention.head_dim,
            norm_width=side.heads * attention.head_dim if attention.layerwise else None,
            start=start,
            gain_offset=side.norm.gain_offset,
            bias=norm_bias,
        )
    if before is None:
        return None
    if attention.through is not None:
        return mapped_ball(
            weight,
            *_map(checkpoint, attention.through),
            norm=before.kind,
            gain=vectors[0],
            norm_bias=vectors[1],
            bias=bias,
        )
    return projection_ball(
        weight,
        norm=before.kind,
        gain=vectors[0],
        gain_offset=before.gain_offset,
        norm_bias=vectors[1],
        bias=bias,
        overwrite_weight=True,
    )


def _map(checkpoint: Checkpoint, through: Through) -> tuple[Vector, Vector | None]:
    """The map's stored matrix and bias."""
    shift = None
    if through.bias is not None:
        shift = to_float64(checkpoint.read(through.bias), tensor=through.bias)
    return to_float64(checkpoint.read(through.weight), tensor=through.weight), shift


def _query(
    checkpoint: Checkpoint,
    attention: Attention,
    head: int,
    norm: Vectors,
) -> BallImage | None:
    """One head's queries, the factor of the rotated coordinates included."""
    ball = _ball(checkpoint, attention, attention.query, head, attention.input_norm, norm)
    if ball is None or attention.rotary is None:
        return ball
    return scaled_rows(ball, attention.rotary.pairs.ravel(), attention.rotated_factor)


def _qk_norm(
    checkpoint: Checkpoint, attention: Attention, side: Projection, head: int
) -> QKNorm | None:
    if side.norm is None:
        return None
    part = outputs_of(attention, side, head)
    if attention.layerwise:
        part = slice(side.first, side.first + side.heads * attention.head_dim)
    bias: NDArray[Any] | None = None if side.bias is None else checkpoint.read(side.bias, part)
    return QKNorm(
        weight=checkpoint.read(side.weight, part),
        bias=bias,
        start=head * attention.head_dim if attention.layerwise else 0,
        eps=attention.eps,
        centred=side.norm.kind == "layer",
    )


def _reach(
    checkpoint: Checkpoint,
    attention: Attention,
    vectors: tuple[Vectors, Vectors],
    query_norm: QKNorm | None,
    key_norm: QKNorm | None,
) -> Reach:
    factor = attention.input_factor
    reach = _states(attention.width, attention.input_norm, vectors[0], factor)
    if attention.through is not None:
        reach = _mapped(checkpoint, attention, reach)
    if attention.key_input is None:
        return replace(reach, query_norm=query_norm, key_norm=key_norm)
    width = attention.key_width or attention.width
    keys = _states(width, attention.key_input, vectors[1], factor)
    return replace(reach, query_norm=query_norm, keys=replace(keys, key_norm=key_norm))


def _mapped(checkpoint: Checkpoint, attention: Attention, reach: Reach) -> Reach:
    """The states behind the map, from those behind the norm."""
    assert attention.through is not None
    matrix, shift = _map(checkpoint, attention.through)
    bias = shift if reach.bias is None else matrix @ reach.bias + (0.0 if shift is None else shift)
    radius = math.sqrt(attention.through.inner)
    return replace(reach, through=matrix, bias=bias, radius=radius)


def _states(width: int, norm: Norm | None, vectors: Vectors, factor: float) -> Reach:
    """The hidden states behind a norm, times a factor, or any where there is none."""
    if norm is None:
        return Reach(width, math.inf)
    gain, bias = vectors
    return Reach(
        width=width,
        radius=math.sqrt(width) * factor,
        gain=None if gain is None else gain + norm.gain_offset,
        bias=bias,
        centred=norm.kind == "layer",
    )
