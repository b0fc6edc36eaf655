"""Ellipsoids that cover a ball image, with the rounding errors of their Gram matrices.

The ball image {ρ M u + a : ‖u‖ ≤ 1} lies in every ellipsoid {F z : ‖z‖ ≤ 1} with
F Fᵀ = ρ² M Mᵀ / w + a aᵀ / (1 − w), 0 < w < 1. For the largest norm of a linear image the best w
loses nothing: it solves the trust-region problem, so a bias costs one number, not a new bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dispersion.cholesky import UNIT_ROUNDOFF, gamma, lambda_max_upper, norm_upper

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.head import BallImage

_UP = 1 + 2.0**-50
_TINY = 2.0**-480


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """{F z : ‖z‖ ≤ 1}, known through the float64 Gram matrix of F.

    Attributes:
        gram: F Fᵀ as computed, shape (head_dim, head_dim).
        sizes: upper bounds on the row norms of F, shape (head_dim,).
        coefficient: entry (i, j) of `gram` is off by at most coefficient · sizes[i] · sizes[j].
        row_error: every point of the exact set differs in coordinate i by at most this from some
            point of the ellipsoid; None where it lies inside. Without an offset, row i of the
            exact F differs from that of F by at most this in 2-norm.

    """

    gram: NDArray[np.float64]
    sizes: NDArray[np.float64]
    coefficient: float
    row_error: NDArray[np.float64] | None

    def norm_upper(
        self, scales: NDArray[np.float64] | None = None, *, top: float | None = None
    ) -> float:
        """Upper bound on max ‖diag(scales) x‖ over the ellipsoid. **Upper**, excess about 1e-12.

        With `top`, a number a little above the largest square, about as much more; that saves time.
        """
        scales = np.ones(len(self.sizes)) if scales is None else scales
        unit = unit_of(scales * self.sizes)
        scales = scales / unit
        matrix = scales[:, None] * self.gram * scales
        sizes = scales * self.sizes
        error = (self.coefficient + 8 * UNIT_ROUNDOFF) * float(sizes @ sizes)
        slack = None if self.row_error is None else scales * self.row_error
        return _norm(matrix, error, slack, unit, top)

    def image_norm_upper(self, transform: NDArray[np.float64]) -> float:
        """Upper bound on max ‖transform @ x‖, for any (r, head_dim) matrix. **Upper**."""
        modulus = np.abs(transform)
        unit = unit_of(modulus @ self.sizes)
        transform, modulus = transform / unit, modulus / unit
        matrix = transform @ self.gram @ transform.T
        sizes = modulus @ self.sizes
        error = (self.coefficient + gamma(2 * len(self.sizes) + 8)) * float(sizes @ sizes) * _UP
        slack = None if self.row_error is None else modulus @ self.row_error
        return _norm(np.tril(matrix) + np.tril(matrix, -1).T, error, slack, unit)

    @property
    def error(self) -> float:
        """Bound on the 2-norm error of `gram`, without the row errors."""
        return self.coefficient * float(self.sizes @ self.sizes) * _UP

    @property
    def slack(self) -> float:
        """Bound on the distance of the exact set's points from the ellipsoid."""
        return 0.0 if self.row_error is None else norm_upper(self.row_error)


def reordered(matrix: NDArray[np.float64], order: NDArray[np.intp]) -> NDArray[np.float64]:
    """The rows and columns of a square matrix in an order, in a third of fancy indexing's time."""
    return np.take(np.take(matrix, order, axis=0), order, axis=1)


def cover(
    ball: BallImage, weight: float = 0.5, *, keep: NDArray[np.bool_] | None = None
) -> Ellipsoid:
    """The ellipsoid with share `weight` for the matrix and the rest for the offset.

    Args:
        ball: the ball image.
        weight: w in (0, 1); of no effect where the offset is zero.
        keep: the coordinates whose offset counts, for bounds in which the rest of it cancels; all
            by default.

    """
    offset = _kept(ball.offset, keep)
    offset_error = _kept(ball.offset_error, keep)
    share = 1.0
    if offset is not None:
        share = min(max(weight, 2.0**-40), 1 - 2.0**-40)
    rest = (1 - share) * (1 - 4 * UNIT_ROUNDOFF)  # share + rest ≤ 1 in exact arithmetic
    # Below this the radius would underflow when squared; a larger one is always valid.
    radius = max(ball.radius.upper, _TINY) if ball.radius.upper else 0.0
    gram = ball.gram * (radius * radius / share)
    row_error = None
    if ball.row_error is not None:
        row_error = ball.row_error * (radius * _UP)
    if offset is not None:
        gram = gram + np.outer(offset, offset) / rest
    if offset_error is not None:
        row_error = offset_error if row_error is None else (row_error + offset_error) * _UP
    coefficient = ball.coefficient
    sizes = np.sqrt(np.diag(gram) * (1 + 2 * coefficient)) * _UP
    active = ball.row_sizes > 0 if radius else np.zeros(len(sizes), dtype=np.bool_)
    if offset is not None:
        active = active | (offset != 0)
    # The floor makes the error terms outweigh what underflows in the Gram matrix.
    sizes = np.where(active, np.maximum(sizes, _TINY), 0.0)
    return Ellipsoid(gram, sizes, coefficient * (1 + 2 * coefficient), row_error)


def _kept(
    values: NDArray[np.float64] | None, keep: NDArray[np.bool_] | None
) -> NDArray[np.float64] | None:
    if values is None:
        return None
    values = values if keep is None else np.where(keep, values, 0.0)
    return values if np.any(values) else None


def best_weight(gram: NDArray[np.float64], offset: NDArray[np.float64]) -> float:
    """The w that minimises λ_max(gram / w + offset offsetᵀ / (1 − w)), by its secular equation.

    With gram = Σ λ_i e_i e_iᵀ and m_i = e_iᵀ offset, that minimum is min over λ > λ_max of
    λ (1 + Σ m_i² / (λ − λ_i)), at w = 1 / (1 + Σ m_i² / (λ − λ_i)). Only an optimiser: any w
    gives a valid bound.
    """
    from scipy.optimize import brentq

    if not (np.all(np.isfinite(gram)) and np.all(np.isfinite(offset))):
        return 0.5  # out of range
    size = max(float(np.sqrt(np.max(np.abs(np.diag(gram))))), float(np.max(np.abs(offset))))
    if size == 0.0:
        return 1 - 2.0**-40
    # The weight does not depend on a common scale; near 1 nothing underflows.
    values, vectors = np.linalg.eigh(gram / size / size)
    squares = (vectors.T @ (offset / size)) ** 2
    total = float(squares.sum())
    if total <= 2.0**-200:
        return 1 - 2.0**-40
    top = max(float(values[-1]), 0.0)

    def slope(level: float) -> float:
        gap = level - values
        return float(1 - (squares * values / gap**2).sum())

    # slope → −∞ as level falls to λ_max unless the offset misses the top (the hard case).
    low = top + 1e-14 * (top + total)
    if slope(low) >= 0:
        level = low
    else:
        high = top + 2 * (math.sqrt(total * max(top, 1e-300)) + 1e-300)
        while slope(high) < 0:
            high = top + 2 * (high - top)
        level = float(brentq(slope, low, high, rtol=1e-13))
    return 1 / (1 + float((squares / (level - values)).sum()))


def unit_of(sizes: NDArray[np.float64]) -> float:
    """A power of two near the largest of some sizes, so that their squares stay in range."""
    top = float(np.max(sizes))
    return 2.0 ** min(max(math.frexp(top)[1], -1000), 1000) if 0 < top < math.inf else 1.0


def _norm(
    matrix: NDArray[np.float64],
    error: float,
    slack: NDArray[np.float64] | None,
    unit: float,
    top: float | None = None,
) -> float:
    """Unit · (√(λ_max + error) + ‖slack‖), rounded up; 0 only where all of it is 0."""
    guess = None if top is None else top / unit / unit
    square = lambda_max_upper(matrix, error, guess=guess)
    norm = math.sqrt(square) * _UP
    if slack is not None:
        norm = (norm + norm_upper(slack)) * _UP
    return math.nextafter(norm * unit, math.inf) if norm else 0.0
