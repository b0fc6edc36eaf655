"""Norms and projections as affine images of a unit ball (the normal form of theory T9, T10).

What rounding does to a stored matrix is carried along as a row error, so that certificates hold
for real arithmetic on the stored weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from dispersion.cholesky import UNIT_ROUNDOFF, gamma
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError
from dispersion.head import ONE, BallImage
from dispersion.rigor import sqrt_enclosure

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.directions import Section

NormKind = Literal["rms", "layer"]

LARGEST_INPUT = 1e100
"""The largest input norm that is taken: squares of larger ones leave float64."""

# Models round 1 + w to float32 before use; a certificate that allows for it holds either way.
SHIFTED_GAIN_ROUNDING = 2.0**-24


def projection_ball(
    weight: NDArray[np.float64],
    *,
    norm: NormKind,
    gain: NDArray[np.float64] | None = None,
    gain_offset: float = 0.0,
    norm_bias: NDArray[np.float64] | None = None,
    bias: NDArray[np.float64] | None = None,
    cap: str | None = None,
    overwrite_weight: bool = False,
) -> BallImage:
    """The image of a normalised hidden state under one head's projection.

    A normalised state is √width · g ⊙ u + β with ‖u‖ ≤ 1, whatever the norm's ε ≥ 0; LayerNorm
    also makes u ⟂ 1. Hence q = √width · W diag(g) P u + (W β + b), P removing the mean.

    Args:
        weight: the head's rows, float64, shape (head_dim, width), layout [out, in].
        norm: "rms" or "layer", the norm in front of the projection.
        gain: shape (width,), the norm's stored weight, or None for ones.
        gain_offset: 1.0 where the model multiplies by 1 + weight, else 0.0.
        norm_bias: shape (width,), the norm's bias β, or None.
        bias: shape (head_dim,), the projection's bias b, or None.
        cap: words for the report; "input RMSNorm" or "input LayerNorm" by default.
        overwrite_weight: whether `weight` may be written to, which saves memory and time.

    Raises:
        ArgumentError: a shape does not fit.

    """
    rows, width = _matrix_shape(weight)
    _check_length("gain", gain, width)
    _check_length("norm_bias", norm_bias, width)
    _check_length("bias", bias, rows)
    offset, offset_error = _offset(weight, norm_bias, bias)
    matrix = weight
    relative = 0.0
    if gain is not None or gain_offset:
        out = weight if overwrite_weight else None
        matrix = np.multiply(weight, _shifted(gain, gain_offset, width), out=out)
        relative += _gain_rounding(gain_offset)
    sizes = np.sqrt(np.vecdot(matrix, matrix))
    if norm == "layer":
        # The mean of a row is off by at most γ_width times the mean modulus of its entries.
        matrix = matrix - matrix.mean(axis=1, keepdims=True)
        relative += gamma(width + 4) + UNIT_ROUNDOFF
    row_error = sizes * (relative * (1 + gamma(width + 8))) if relative else None
    return BallImage(
        matrix=matrix,
        offset=offset,
        radius=sqrt_enclosure(width),
        row_error=row_error,
        offset_error=offset_error,
        cap=cap or {"rms": "input RMSNorm", "layer": "input LayerNorm"}[norm],
    )


def qk_norm_ball(
    gain: NDArray[np.float64] | None,
    *,
    kind: NormKind,
    head_dim: int,
    norm_width: int | None = None,
    start: int = 0,
    gain_offset: float = 0.0,
    bias: NDArray[np.float64] | None = None,
    cap: str | None = None,
) -> BallImage:
    """The image of one head's normalised query or key: √norm_width · diag(g) u (+ bias).

    Headwise norm has norm_width = head_dim. Layerwise norm over H heads has norm_width =
    H · head_dim, and one head may take the whole norm. LayerNorm also removes the mean over
    norm_width.

    Args:
        gain: shape (norm_width,), the stored weight, or None for ones.
        kind: "rms" or "layer".
        head_dim: coordinates per head.
        norm_width: how many coordinates the norm treats together; head_dim by default.
        start: this head's first coordinate within norm_width.
        gain_offset: 1.0 where the model multiplies by 1 + weight.
        bias: shape (norm_width,), the norm's bias, or None.
        cap: words for the report.

    Raises:
        ArgumentError: a shape does not fit.

    """
    norm_width = head_dim if norm_width is None else norm_width
    if not 0 <= start <= norm_width - head_dim:
        msg = (
            "start and head_dim must fit into norm_width. "
            f"Got start={start}, head_dim={head_dim}, norm_width={norm_width}."
        )
        raise ArgumentError(msg)
    _check_length("gain", gain, norm_width)
    _check_length("bias", bias, norm_width)
    part = slice(start, start + head_dim)
    factors = _shifted(gain, gain_offset, norm_width)[part]
    relative = _gain_rounding(gain_offset) if gain is not None and gain_offset else 0.0
    if kind == "layer":
        matrix = np.full((head_dim, norm_width), -1.0 / norm_width)
        matrix[np.arange(head_dim), np.arange(start, start + head_dim)] += 1.0
        matrix *= factors[:, None]
        relative += 4 * UNIT_ROUNDOFF
    else:
        matrix = np.diag(factors)
    layerwise = norm_width != head_dim
    return BallImage(
        matrix=matrix,
        offset=None if bias is None else bias[part],
        radius=sqrt_enclosure(norm_width),
        row_error=np.abs(factors) * (relative * (1 + 2.0**-40)) if relative else None,
        cap=cap or ("layerwise QK norm" if layerwise else "headwise QK norm"),
    )


def section_ball(
    section: Section,
    plain: BallImage,
    gain: NDArray[np.float64] | None,
    *,
    start: int = 0,
    gain_offset: float = 0.0,
    bias: NDArray[np.float64] | None = None,
) -> BallImage:
    """One head's normalised queries or keys where the norm's input does not point everywhere.

    Args:
        section: what holds the vectors in front of the gain, of size at most 1 (directions.py).
        plain: the image of all directions, as `qk_norm_ball` makes it from the same numbers.
        gain, start, gain_offset, bias: as there.

    """
    norm_width = len(section.matrix)
    part = slice(start, start + plain.head_dim)
    factors = _shifted(gain, gain_offset, norm_width)[part]
    relative = 2 * UNIT_ROUNDOFF
    if gain is not None and gain_offset:
        relative += _gain_rounding(gain_offset)
    rows = section.matrix[part]
    sizes = np.sqrt(np.vecdot(rows, rows)) * (1 + 2.0**-40)
    offset = None if bias is None else bias[part]
    offset_error = None
    if section.offset is not None:
        moved = plain.radius.upper * factors * section.offset[part]
        offset_error = (relative + 8 * UNIT_ROUNDOFF) * (1 + 2.0**-40) * np.abs(moved)
        if offset is not None:
            moved = moved + offset
            offset_error = offset_error + 2 * UNIT_ROUNDOFF * np.abs(moved)
        offset = moved
    return BallImage(
        matrix=factors[:, None] * rows,
        offset=offset,
        radius=plain.radius,
        row_error=np.abs(factors) * sizes * (relative * (1 + 2.0**-40)),
        offset_error=offset_error,
        cap=plain.cap,
    )


def centred_rows(ball: BallImage) -> BallImage:
    """The image {x − mean(x)}: what LayerNorm divides by its length."""
    size = ball.head_dim
    matrix = ball.matrix - ball.matrix.mean(axis=0)
    # A mean is off by γ times the mean modulus, and its difference once more.
    rounding = gamma(size + 8)
    sizes = np.sqrt(np.vecdot(ball.matrix, ball.matrix)) * (1 + gamma(ball.matrix.shape[1] + 8))
    row_error = rounding * (sizes + sizes.mean())
    if ball.row_error is not None:
        row_error = row_error + ball.row_error + ball.row_error.mean()
    offset, offset_error = ball.offset, None
    if offset is not None:
        offset_error = rounding * (np.abs(offset) + np.abs(offset).mean())
        if ball.offset_error is not None:
            offset_error = offset_error + ball.offset_error + ball.offset_error.mean()
        offset_error = offset_error * (1 + 2.0**-40)
        offset = offset - offset.mean()
    return BallImage(
        matrix=matrix,
        offset=offset,
        radius=ball.radius,
        row_error=row_error * (1 + 2.0**-40),
        offset_error=offset_error,
    )


def capped_ball(
    weight: NDArray[np.float64], *, radius: float, cap: str = "--input-norm"
) -> BallImage:
    """The image of inputs whose 2-norm is at most `radius` under one head's projection.

    Args:
        weight: shape (head_dim, width).
        radius: the largest 2-norm of an input; the caller's promise.
        cap: words for the report.

    Raises:
        ArgumentError: radius is negative or not finite.

    """
    _matrix_shape(weight)
    if not 0 <= radius <= LARGEST_INPUT:
        msg = f"input norm must lie between 0 and {LARGEST_INPUT:g}. Got {radius}."
        raise ArgumentError(msg)
    return BallImage(matrix=weight, radius=Enclosure.exact(float(radius)), cap=cap)


def unit_ball(head_dim: int, *, radius: Enclosure = ONE, cap: str = "L2 norm") -> BallImage:
    """All vectors of norm at most `radius` (an L2 norm with a fixed scale)."""
    return BallImage(matrix=np.eye(head_dim), radius=radius, cap=cap)


def _shifted(gain: NDArray[np.float64] | None, offset: float, width: int) -> NDArray[np.float64]:
    return np.ones(width) if gain is None else np.asarray(gain + offset)


def _gain_rounding(gain_offset: float) -> float:
    product = 2 * UNIT_ROUNDOFF
    return product + SHIFTED_GAIN_ROUNDING if gain_offset else product


def _offset(
    weight: NDArray[np.float64],
    norm_bias: NDArray[np.float64] | None,
    bias: NDArray[np.float64] | None,
) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
    if norm_bias is None:
        return bias, None
    offset = weight @ norm_bias
    modulus = np.abs(weight) @ np.abs(norm_bias)
    if bias is not None:
        offset = offset + bias
        modulus = modulus + np.abs(bias)
    return offset, modulus * (gamma(weight.shape[1] + 4) * (1 + gamma(weight.shape[1] + 8)))


def _matrix_shape(weight: NDArray[np.float64]) -> tuple[int, int]:
    if weight.ndim != 2 or 0 in weight.shape:
        msg = f"weight must have shape (head_dim, width), neither zero. Got {weight.shape}."
        raise ArgumentError(msg)
    return int(weight.shape[0]), int(weight.shape[1])


def _check_length(name: str, value: NDArray[np.float64] | None, length: int) -> None:
    if value is not None and value.shape != (length,):
        msg = f"{name} must have shape ({length},). Got {value.shape}."
        raise ArgumentError(msg)
