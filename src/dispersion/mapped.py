"""A linear map between a norm and the projections, as where narrow embeddings are widened.

The projections then read  T (√r · g ⊙ u + β) + t  with ‖u‖ ≤ 1 in the norm's own r coordinates, so
one head's queries are  √r · W T diag(g) P u + (W (T β + t) + b): the image of a ball of r
dimensions under the product of two stored matrices, whose rounding goes into the row errors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dispersion.cholesky import gamma
from dispersion.errors import ArgumentError
from dispersion.norms import projection_ball

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.head import BallImage
    from dispersion.norms import NormKind

    Vector = NDArray[np.float64]

_UP = 1 + 2.0**-40


def mapped_ball(
    weight: Vector,
    through: Vector,
    shift: Vector | None,
    *,
    norm: NormKind,
    gain: Vector | None = None,
    norm_bias: Vector | None = None,
    bias: Vector | None = None,
    cap: str | None = None,
) -> BallImage:
    """The image of a normalised state under a linear map and then one head's projection.

    Args:
        weight: W, the head's rows, shape (head_dim, width).
        through: T, shape (width, r), r coordinates of the norm.
        shift: t, shape (width,), or None.
        norm, gain, norm_bias, bias, cap: as in `projection_ball`, the norm's of r coordinates.

    Raises:
        ArgumentError: a shape does not fit.

    """
    if through.ndim != 2 or weight.ndim != 2 or through.shape[0] != weight.shape[1]:
        msg = (
            "through must have shape (width, inner) to fit weight (head_dim, width). "
            f"Got {through.shape} and {weight.shape}."
        )
        raise ArgumentError(msg)
    width, inner = through.shape
    sizes = np.abs(weight) @ np.abs(through)
    ball = projection_ball(weight @ through, norm=norm, gain=gain, cap=cap)
    # Entry (i, j) of the product is off by at most γ_width (|W||T|)_ij, whatever the order of sums;
    # the gain scales columns, and removing the mean lengthens no row.
    scaled = sizes if gain is None else sizes * np.abs(gain)
    row_error = np.sqrt(np.einsum("ij,ij->i", scaled, scaled)) * (gamma(width + 4) * _UP)
    if ball.row_error is not None:
        row_error = (row_error + ball.row_error) * _UP
    ball = replace(ball, row_error=row_error)
    if norm_bias is None and shift is None:
        return replace(ball, offset=bias)
    inner_state = np.zeros(width)
    inner_size = np.zeros(width)
    if norm_bias is not None:
        inner_state = through @ norm_bias
        inner_size = np.abs(through) @ np.abs(norm_bias)
    if shift is not None:
        inner_state = inner_state + shift
        inner_size = inner_size + np.abs(shift)
    offset = weight @ inner_state
    size = np.abs(weight) @ inner_size
    if bias is not None:
        offset = offset + bias
        size = size + np.abs(bias)
    error = size * (gamma(width + inner + 8) * _UP)
    return replace(ball, offset=offset, offset_error=error)
