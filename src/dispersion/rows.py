"""Ball images with some of their coordinates multiplied by a number known to within rounding.

The cos/sin factor a of YaRN and LongRoPE reaches the logit of the rotated coordinates as a² and
the others not at all: l = s·(⟨q_still, k_still⟩ + a²·⟨q_rot, R k_rot⟩). Multiplying the rotated
coordinates of the query by a² says the same, so a partly rotated head keeps its normal form.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dispersion.cholesky import UNIT_ROUNDOFF, gamma
from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from dispersion.enclosure import Enclosure
    from dispersion.head import BallImage

_UP = 1 + 2.0**-50


def scaled_rows(ball: BallImage, rows: ArrayLike, factor: Enclosure) -> BallImage:
    """The image {D x : x in the ball image}, D = diag with `factor` at `rows` and 1 elsewhere.

    What rounding and the width of the enclosure do to the stored numbers goes into the errors.

    Args:
        ball: any ball image.
        rows: indices of coordinates of head space.
        factor: encloses a positive number.

    Raises:
        ArgumentError: factor is not positive.

    """
    if factor.lower <= 0:
        msg = f"factor must be positive. Got {factor}."
        raise ArgumentError(msg)
    if factor.lower == factor.upper == 1.0:
        return ball
    chosen = np.zeros(ball.head_dim, dtype=np.bool_)
    chosen[np.asarray(rows, dtype=np.intp)] = True
    middle = (factor.lower + factor.upper) / 2
    # |factor − middle|, and one rounding in each product.
    drift = ((factor.upper - factor.lower) + 2 * UNIT_ROUNDOFF * factor.upper) * _UP
    by = np.where(chosen, middle, 1.0)
    most = np.where(chosen, factor.upper, 1.0)
    matrix = by[:, None] * ball.matrix
    sizes = np.sqrt(np.einsum("ij,ij->i", ball.matrix, ball.matrix))
    sizes = sizes * (1 + gamma(ball.matrix.shape[1] + 8))
    row_error = np.where(chosen, drift * sizes, 0.0)
    offset, offset_error = ball.offset, ball.offset_error
    if offset is not None:
        new_error = np.where(chosen, drift * np.abs(offset), 0.0)
        offset_error = _sum(offset_error, most, new_error)
        offset = by * offset
    return replace(
        ball,
        matrix=matrix,
        offset=offset,
        row_error=_sum(ball.row_error, most, row_error),
        offset_error=offset_error,
    )


def _sum(
    before: NDArray[np.float64] | None, most: NDArray[np.float64], new: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Errors of a product: what was there, enlarged, and what is new."""
    return new * _UP if before is None else np.asarray((before * most + new) * _UP)
