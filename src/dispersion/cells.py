"""Cells of a pair of ellipsoids, and the certified bound over cells that cover it.

The theorem is stated in refine.py. This file is all that its proof rests on: `wedges` makes covers,
`certified` bounds each cell. Where cells, scales and multipliers come from does not matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dispersion.cholesky import (
    UNIT_ROUNDOFF,
    gamma,
    is_positive_semidefinite,
    lambda_max_upper,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from dispersion.ellipsoid import Ellipsoid

_UP = 1 + 2.0**-50


@dataclass(frozen=True, eq=False)
class Covered:
    """Points {L z + δ : ‖z‖ ≤ 1} that cover one side of a head.

    Attributes:
        root: L, shape (head_dim, head_dim).
        excess: κ ≥ 1 with κ L Lᵀ ⪰ F Fᵀ, proved (spread.factor).
        row_error: bounds on the entries of δ, shape (head_dim,), or None for zero.

    """

    root: NDArray[np.float64]
    excess: float
    row_error: NDArray[np.float64] | None

    @classmethod
    def by(cls, ellipsoid: Ellipsoid) -> Covered:
        """The cover of an ellipsoid."""
        from dispersion.covers import factor

        return cls(*factor(ellipsoid), ellipsoid.row_error)


@dataclass(frozen=True, eq=False)
class Cut:
    """The unit vectors z with (first·z)(second·z) ≤ 0; both of shape (head_dim,)."""

    first: NDArray[np.float64]
    second: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cell:
    """What obeys all its cuts, with scales and multipliers that bound the logits there.

    Attributes:
        cuts: the cuts of the query side and those of the key side.
        scales: s of S = diag(s), equal within rotated pairs, shape (head_dim,).
        multipliers: λ ≥ 0 of the cuts, for each side.
        levels: estimates of the largest ‖S⁻¹q‖² and ‖S k‖² in the cell.

    """

    cuts: tuple[tuple[Cut, ...], tuple[Cut, ...]]
    scales: NDArray[np.float64]
    multipliers: tuple[NDArray[np.float64], NDArray[np.float64]]
    levels: tuple[float, float]


def wedges(boundaries: NDArray[np.float64]) -> list[Cut]:
    """Cuts that cover all directions, from any vectors, shape (K, head_dim), K ≥ 1.

    The products with f_0 … f_{K−1} and −f_0 begin and end with opposite signs, so two neighbours
    have opposite signs or one is zero.
    """
    ring = [*boundaries, -boundaries[0]]
    return [Cut(f, g) for f, g in pairwise(ring)]


def certified(queries: Covered, keys: Covered, cells: Iterable[Cell], enough: float = 0.0) -> float:
    """Upper bound on |⟨R q, R′ k⟩| over the cells and all rotations. **Upper.**

    Args:
        queries, keys: the two sides.
        cells: cells that cover both sides together; whoever makes them vouches for that.
        enough: a value below which no cell need be pushed.

    """
    bound = 0.0
    for cell in cells:
        value = math.sqrt(max(cell.levels[0], 0.0)) * math.sqrt(max(cell.levels[1], 0.0))
        stretch = 1 + 2.0**-20
        if value > 0:
            stretch = max(stretch, max(enough, bound) / value)
        norm = 1.0
        for side, covered in enumerate((queries, keys)):
            scales = 1 / cell.scales if side == 0 else cell.scales
            norm *= _side_norm(
                covered,
                scales,
                cell.cuts[side],
                cell.multipliers[side],
                cell.levels[side] * stretch,
            )
        if not math.isfinite(norm):
            return math.inf
        # scales · (1/scales) differs from 1 by one rounding, which _UP outweighs.
        bound = max(bound, norm * _UP)
    return bound


def _side_norm(
    covered: Covered,
    scales: NDArray[np.float64],
    cuts: tuple[Cut, ...],
    multipliers: NDArray[np.float64],
    level: float,
) -> float:
    """Upper bound on ‖diag(scales) x‖ over one side of a cell."""
    square = _square(scales[:, None] * covered.root, cuts, multipliers, level)
    norm = math.sqrt(max(square, 0.0) * covered.excess) * _UP
    if covered.row_error is not None:
        norm = (norm + float(np.linalg.norm(scales * covered.row_error)) * _UP) * _UP
    return norm


def _square(
    image: NDArray[np.float64],
    cuts: tuple[Cut, ...],
    multipliers: NDArray[np.float64],
    level: float,
) -> float:
    """Upper bound on ‖image z‖² over the unit z that obey the cuts: `level` where proved."""
    form = image.T @ image
    sizes = float(np.vdot(image, image))
    # Only λ ≥ 0 proves anything.
    used = [(c, float(m)) for c, m in zip(cuts, multipliers, strict=True) if 0 < m < math.inf]
    if used:
        first = np.array([cut.first * (multiplier / 2) for cut, multiplier in used])
        second = np.array([cut.second for cut, _ in used])
        half = first.T @ second
        half += half.T.copy()
        form -= half
        ends = np.linalg.norm(first, axis=1) @ np.linalg.norm(second, axis=1)
        sizes += 2 * float(ends) * _UP
    # Entries are at most `sizes`, so all are finite where it is.
    if not math.isfinite(sizes):
        return math.inf
    # `image` carries the rounding of its product; every entry is then a sum of rounded products.
    size = len(form)
    error = gamma(2 * size + 8 * len(cuts) + 16) * sizes * _UP
    diagonal = np.diag(form)
    error += 2 * UNIT_ROUNDOFF * (abs(level) + float(np.max(np.abs(diagonal))))
    if level > 0:
        trial = np.negative(form)
        trial.flat[:: size + 1] += level
        if is_positive_semidefinite(trial, error * _UP):
            return level
    return lambda_max_upper(form, error)
