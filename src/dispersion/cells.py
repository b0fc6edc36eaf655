"""Cells of a pair of ellipsoids, and the certified bound over cells that cover it.

The theorem is stated in refine.py. This file is all that its proof rests on: `wedges` makes covers,
`certified` bounds each cell. Where cells, weights and multipliers come from does not matter.

**One side of a cell.** Its points are B z, ‖z‖ ≤ 1. Let V have a few columns, u = Vᵀz, r = z − V u.
Then ‖u‖² + ‖r‖² ≤ 1 + δ, δ small where VᵀV is near I, and B z = F u + G r for F = B V and
G = B − F Vᵀ, up to a multiple of VᵀV − I. With weights W on the coordinates, c = max W·‖G‖², any
a > c and any β > 0,

    ‖W^½(F u + G r)‖² = uᵀFᵀWF u + 2 (uᵀFᵀ(W − I) + uᵀFᵀ) G r + rᵀGᵀWG r
                      ≤ uᵀ(FᵀWF + ((1 + β)‖G‖² Fᵀ(W − I)²F + (1 + 1/β)‖FᵀG‖²)/(a − c)) u + a‖r‖²,

because 2xy ≤ x²/(a − c) + (a − c) y². The cell adds −Σ λ (f·u)(g·u) ≥ 0. Where the matrix between
uᵀ and u is then proved to be at most a, the left side is at most a (1 + δ). Only leading directions
are branched, so matrices stay small and little is lost: G is what does not matter much.
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
    norm_upper,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dispersion.ellipsoid import Ellipsoid

_UP = 1 + 2.0**-50
_BETA = 2.0**-20
_TRIES = 16  # levels, at last many times the first


@dataclass(frozen=True, eq=False)
class Covered:
    """Points that cover one side of a head: √excess · (F u + G r) + e, ‖u‖² + ‖r‖² ≤ 1.

    Attributes:
        leading: F, with the rows of one pair at i and i + head_dim/2, shape (head_dim, k).
        rest: an upper bound on ‖G‖.
        overlap: an upper bound on ‖FᵀG‖.
        excess: at least 1.
        slack: an upper bound on ‖e‖.

    """

    leading: NDArray[np.float64]
    rest: float
    overlap: float
    excess: float
    slack: float

    @classmethod
    def by(
        cls,
        ellipsoid: Ellipsoid,
        scales: NDArray[np.float64],
        order: NDArray[np.intp],
        vectors: NDArray[np.float64],
    ) -> Covered:
        """The cover of an ellipsoid, each coordinate times its scale.

        Args:
            ellipsoid: the ellipsoid.
            scales: positive, shape (head_dim,).
            order: the first coordinates of all pairs, then the second ones.
            vectors: about the leading eigenvectors of the scaled ellipsoid's Gram matrix, with
                rows in that order, shape (head_dim, k). Any others make the cover looser.

        Raises:
            numpy.linalg.LinAlgError: the scaled sides are out of range.

        """
        from dispersion.covers import factor

        root, excess = factor(ellipsoid)
        image = (scales[:, None] * root)[order]
        axes = image.T @ vectors
        axes /= np.linalg.norm(axes, axis=0)
        leading = image @ axes
        rest = image - leading @ axes.T
        if not np.all(np.isfinite(rest)):
            raise np.linalg.LinAlgError
        size = norm_upper(image.ravel())
        rounding = gamma(2 * len(image) + 16)
        # With ‖·‖ for Frobenius norms: ‖VᵀV − I‖, then ‖(B − F Vᵀ − G)‖ and the like.
        reach = 1 + norm_upper(axes.ravel())
        lacking = axes.T @ axes
        lacking.flat[:: len(lacking) + 1] -= 1
        lack = norm_upper(lacking.ravel()) + 2 * rounding * reach**2
        slack = size * (4 * rounding * reach**2 + reach * lack) * _UP
        square = lambda_max_upper(rest @ rest.T, rounding * norm_upper(rest.ravel()) ** 2 * _UP)
        overlap = norm_upper((leading.T @ rest).ravel())
        overlap += rounding * norm_upper(leading.ravel()) * norm_upper(rest.ravel()) * _UP
        excess *= (1 + lack * reach**2) * _UP
        slack *= excess
        if ellipsoid.row_error is not None:
            slack += norm_upper(scales * ellipsoid.row_error) * _UP
        return cls(leading, math.sqrt(square) * _UP, overlap * _UP, excess * _UP, slack * _UP)


@dataclass(frozen=True, eq=False)
class Cut:
    """The z with (first·u)(second·u) ≤ 0, both of shape (k,) or shorter: of F's last columns."""

    first: NDArray[np.float64]
    second: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cell:
    """What obeys all its cuts, with weights and multipliers that bound the logits there.

    Attributes:
        cuts: the cuts of the query side and those of the key side.
        weights: w > 0 of the rotated pairs: squares of queries times w, of keys over w,
            shape (head_dim/2,).
        multipliers: λ ≥ 0 of the cuts, for each side.
        levels: estimates of the largest weighted square of either side in the cell.

    """

    cuts: tuple[tuple[Cut, ...], tuple[Cut, ...]]
    weights: NDArray[np.float64]
    multipliers: tuple[NDArray[np.float64], NDArray[np.float64]]
    levels: tuple[float, float]


def wedges(boundaries: NDArray[np.float64]) -> list[Cut]:
    """Cuts that cover all directions, from any vectors, shape (K, k), K ≥ 1.

    The products with f_0 … f_{K−1} and −f_0 begin and end with opposite signs, so two neighbours
    have opposite signs or one is zero.
    """
    ring = [*boundaries, -boundaries[0]]
    return [Cut(f, g) for f, g in pairwise(ring)]


def certified(queries: Covered, keys: Covered, cells: Sequence[Cell], enough: float = 0.0) -> float:
    """Upper bound on Σ_i ‖q_i‖·‖k_i‖ over the pairs of the points of all cells. **Upper.**

    That is a bound on |⟨R q, R′ k⟩| for all rotations R and R′ of the pairs.

    Args:
        queries, keys: the two sides.
        cells: cells that cover both sides together; whoever makes them vouches for that.
        enough: a value below which no cell need be pushed.

    """
    weights = np.array([cell.weights for cell in cells])
    if not np.all((weights > 0) & (weights < math.inf)):
        return math.inf
    norms = np.ones(len(cells))
    for side, covered in enumerate((queries, keys)):
        # w · (1/w) differs from 1 by one rounding, which _UP outweighs.
        norms *= _side_norms(covered, 1 / weights if side else weights, side, cells, enough) * _UP
    return float(np.max(norms)) if np.all(np.isfinite(norms)) else math.inf


def _stretch(levels: tuple[float, float], enough: float) -> float:
    value = math.sqrt(max(levels[0], 0.0)) * math.sqrt(max(levels[1], 0.0))
    return max(1 + 2.0**-20, enough / value) if value > 0 else 1.0


def _side_norms(
    covered: Covered,
    weights: NDArray[np.float64],
    side: int,
    cells: Sequence[Cell],
    enough: float,
) -> NDArray[np.float64]:
    """Upper bounds on the weighted norms of one side, for each cell."""
    size = covered.leading.shape[1]
    halves = covered.leading.reshape(2, -1, size)
    table = np.einsum("hia,hib->iab", halves, halves).reshape(-1, size * size)
    energies = np.einsum("hia,hia->i", halves, halves)
    moves = (weights - 1) ** 2
    forms = (weights @ table).reshape(-1, size, size)
    turned = (moves @ table).reshape(-1, size, size)
    form_sizes, turned_sizes, tops = weights @ energies, moves @ energies, weights.max(axis=1)
    norms = np.empty(len(cells))
    for i, cell in enumerate(cells):
        sizes = float(form_sizes[i]), float(turned_sizes[i])
        own = _cut(forms[i], sizes[0], cell.cuts[side], cell.multipliers[side])
        square = _proved(
            covered,
            *own,
            turned[i],
            sizes[1],
            float(tops[i]),
            cell.levels[side] * _stretch(cell.levels, enough),
            # Entries are sums over pairs of products of four, and over cuts of products of three.
            gamma(2 * (len(energies) + size + len(cell.cuts[side])) + 32),
        )
        norms[i] = math.sqrt(square * covered.excess) * _UP
        norms[i] += math.sqrt(float(tops[i])) * covered.slack * _UP
    return norms * _UP


def _cut(
    form: NDArray[np.float64],
    sizes: float,
    cuts: tuple[Cut, ...],
    multipliers: NDArray[np.float64],
) -> tuple[NDArray[np.float64], float]:
    """The form less Σ λ sym(f gᵀ), and what its entries' sizes sum up to at most."""
    # Only λ ≥ 0 proves anything.
    used = [(c, float(m)) for c, m in zip(cuts, multipliers, strict=True) if 0 < m < math.inf]
    if used:
        first = np.array([cut.first * (multiplier / 2) for cut, multiplier in used])
        second = np.array([cut.second for cut, _ in used])
        half = first.T @ second
        half += half.T.copy()
        few = len(half)
        form[-few:, -few:] -= half
        ends = np.linalg.norm(first, axis=1) @ np.linalg.norm(second, axis=1)
        sizes += 2 * float(ends) * _UP
    return form, sizes


def _proved(
    covered: Covered,
    form: NDArray[np.float64],
    sizes: float,
    turned: NDArray[np.float64],
    turned_sizes: float,
    top: float,
    level: float,
    rounding: float,
) -> float:
    """An a near `level` that the matrix between uᵀ and u is proved not to exceed, or infinity."""
    size = len(form)
    diagonal = np.diag(form)
    scale = float(np.max(np.abs(diagonal)))
    rest = top * covered.rest**2 * _UP
    if not math.isfinite(sizes) or not math.isfinite(turned_sizes):
        return math.inf
    if not rest < level < math.inf:
        level = 2 * rest + scale
    step = 2.0**-20
    for _ in range(_TRIES):
        room = (level - rest) * (1 - 2.0**-50)
        if room > 0:
            share = (1 + _BETA) * covered.rest**2 / room * _UP
            overlap = (1 + 1 / _BETA) * covered.overlap**2 / room * _UP
            error = rounding * (sizes + share * turned_sizes) * _UP
            error += overlap + 4 * UNIT_ROUNDOFF * (level + scale + share * turned_sizes)
            whole = form + share * turned
            trial = np.negative(whole)
            trial.flat[:: size + 1] += level
            if is_positive_semidefinite(trial, error * _UP):
                return level
            level = max(level, float(np.linalg.eigvalsh(whole)[-1]))
        level *= 1 + step
        step *= 4
    return math.inf
