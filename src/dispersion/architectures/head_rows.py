"""Rows, biases and norm vectors of one head, read from a checkpoint in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispersion.checkpoint import to_float64

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dispersion.architectures.attention import Attention, Norm, Projection
    from dispersion.checkpoint import Checkpoint

    Vector = NDArray[np.float64]
    Vectors = tuple[Vector | None, Vector | None]


def vectors_of(checkpoint: Checkpoint, norm: Norm | None) -> Vectors:
    """A norm's stored gain and bias."""
    names = (None, None) if norm is None else (norm.gain, norm.bias)
    gain, bias = (
        None if name is None else to_float64(checkpoint.read(name), tensor=name) for name in names
    )
    return gain, bias


def stored_vectors(checkpoint: Checkpoint, norm: Norm | None) -> tuple[Vector, Vector]:
    """Gain and bias, shape (width,) each, of a norm whose file has both.

    Raises:
        CheckpointError: a value is not finite; the message names the tensor and the index.
    """
    assert norm is not None
    gain, bias = vectors_of(checkpoint, norm)
    assert gain is not None
    assert bias is not None
    return gain, bias


def outputs_of(attention: Attention, side: Projection, head: int) -> slice:
    """Where one head's outputs lie within the tensor."""
    start = side.first + head * (side.stride or attention.head_dim)
    if side.starts is not None:
        start = side.starts[head]
    return slice(start, start + attention.head_dim)


def rows_of_head(
    checkpoint: Checkpoint, attention: Attention, side: Projection, head: int
) -> Vector:
    """One head's rows in float64, shape (head_dim, width)."""
    part = outputs_of(attention, side, head)
    if side.transposed:
        columns = checkpoint.read(side.weight)[:, part].T
        return to_float64(columns, tensor=f"{side.weight} (transposed)", first_row=part.start)
    rows = checkpoint.read(side.weight, part)
    return to_float64(rows, tensor=side.weight, first_row=part.start)


def bias_of_head(
    checkpoint: Checkpoint, attention: Attention, side: Projection, head: int
) -> Vector | None:
    """One head's part of the bias in float64, shape (head_dim,)."""
    if side.bias is None:
        return None
    part = outputs_of(attention, side, head)
    if side.own_bias:
        part = slice(head * attention.head_dim, (head + 1) * attention.head_dim)
    return to_float64(checkpoint.read(side.bias, part), tensor=side.bias, first_row=part.start)
