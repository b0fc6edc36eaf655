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
    are_positive_semidefinite,
    gamma,
    lambda_max_upper,
    norm_upper,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dispersion.ellipsoid import Ellipsoid

_UP = 1 + 2.0**-50
_BETA = 2.0**-20
_ENTRIES = 2**19  # of the matrices that are proved at a time
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
        beyond: float | None = None,
    ) -> Covered:
        """The cover of an ellipsoid, each coordinate times its scale.

        Args:
            ellipsoid: the ellipsoid.
            scales: positive, shape (head_dim,).
            order: the first coordinates of all pairs, then the second ones.
            vectors: about the leading eigenvectors of the scaled ellipsoid's Gram matrix, with
                rows in that order, shape (head_dim, k). Any others make the cover looser.
            beyond: a number a little above the other eigenvalues, to save computing one.

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
        error = rounding * norm_upper(rest.ravel()) ** 2 * _UP
        square = lambda_max_upper(rest @ rest.T, error, guess=beyond)
        overlap = norm_upper((leading.T @ rest).ravel())
        overlap += rounding * norm_upper(leading.ravel()) * norm_upper(rest.ravel()) * _UP
        excess *= (1 + lack * reach**2) * _UP
        slack *= excess
        if ellipsoid.row_error is not None:
            slack += norm_upper(scales * ellipsoid.row_error) * _UP
        return cls(leading, math.sqrt(square) * _UP, overlap * _UP, excess * _UP, slack * _UP)


@dataclass(frozen=True, eq=False)
class Cut:
    """The points with (first·u)(second·u) ≤ 0.

    Attributes:
        first, second: of shape (k,), or shorter: then they belong to the last of F's columns.

    """

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
    """Upper bound on Σ_i ‖q_i‖·‖k_i‖ over the rotated pairs i of all cells' points. **Upper.**

    That bounds |⟨R q, R′ k⟩|, in logits before the head's scale, for all rotations R and R′ of the
    pairs (theory T10, refined in refine.py). Infinite where nothing is proved.

    Args:
        queries, keys: the two sides.
        cells: cells that cover both sides together; whoever makes them vouches for that.
        enough: a value below which no cell need be pushed.

    """
    most = max(queries.leading.shape[1], keys.leading.shape[1])
    count = max(1, _ENTRIES // most**2)
    bound = 0.0
    for first in range(0, len(cells), count):
        some = cells[first : first + count]
        weights = np.array([cell.weights for cell in some])
        if not np.all((weights > 0) & (weights < math.inf)):
            return math.inf
        # w · (1/w) differs from 1 by one rounding, which _UP outweighs.
        norms = _side_norms(queries, weights, 0, some, enough) * _UP
        norms *= _side_norms(keys, 1 / weights, 1, some, enough) * _UP
        if not np.all(np.isfinite(norms)):
            return math.inf
        bound = max(bound, float(np.max(norms)))
    return bound


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
    forms, cuts = _forms(
        (weights @ table).reshape(-1, size, size),
        [cell.cuts[side] for cell in cells],
        [cell.multipliers[side] for cell in cells],
    )
    most = max(len(cell.cuts[side]) for cell in cells)
    squares = _proved(
        covered,
        forms,
        weights @ energies + cuts,
        (moves @ table).reshape(-1, size, size),
        moves @ energies,
        weights.max(axis=1) * covered.rest**2 * _UP,
        np.array([_level(cell.levels, side, enough) for cell in cells]),
        # Entries are sums over pairs of products of four, and over cuts of products of three.
        gamma(2 * (len(energies) + size + most) + 32),
    )
    slack = np.sqrt(weights.max(axis=1)) * covered.slack
    return np.asarray((np.sqrt(squares * covered.excess) * _UP + slack * _UP) * _UP)


def _level(levels: tuple[float, float], side: int, enough: float) -> float:
    """The level to prove first: a little more than estimated, or what is enough."""
    value = math.sqrt(max(levels[0], 0.0)) * math.sqrt(max(levels[1], 0.0))
    return levels[side] * (max(1 + 2.0**-20, enough / value) if value > 0 else 1.0)


def _forms(
    forms: NDArray[np.float64],
    cuts: Sequence[tuple[Cut, ...]],
    multipliers: Sequence[NDArray[np.float64]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Every form less its Σ λ sym(f gᵀ), and what the sizes of that sum's entries come to."""
    most = max((len(c) for c in cuts), default=0)
    if not most:
        return forms, np.zeros(len(forms))
    few = max(len(cut.first) for c in cuts for cut in c)
    first, second = np.zeros((2, len(forms), most, few))
    for i, (own, values) in enumerate(zip(cuts, multipliers, strict=True)):
        for j, (cut, multiplier) in enumerate(zip(own, values, strict=True)):
            # Only λ ≥ 0 proves anything.
            if 0 < multiplier < math.inf:
                first[i, j, few - len(cut.first) :] = cut.first * (multiplier / 2)
                second[i, j, few - len(cut.second) :] = cut.second
    half = np.swapaxes(first, 1, 2) @ second
    forms[:, -few:, -few:] -= half + np.swapaxes(half, 1, 2)
    ends = np.linalg.norm(first, axis=2) * np.linalg.norm(second, axis=2)
    return forms, 2 * ends.sum(axis=1)


def _proved(
    covered: Covered,
    forms: NDArray[np.float64],
    sizes: NDArray[np.float64],
    turned: NDArray[np.float64],
    turned_sizes: NDArray[np.float64],
    rest: NDArray[np.float64],
    levels: NDArray[np.float64],
    rounding: float,
) -> NDArray[np.float64]:
    """For each cell an a near its level that the matrix between uᵀ and u is proved not to exceed.

    Infinity where none is found.
    """
    size = forms.shape[1]
    proved = np.full(len(forms), math.inf)
    scale = np.abs(np.einsum("cii->ci", forms)).max(axis=1)
    usable = (levels > rest) & (levels < math.inf)
    levels = np.where(usable, levels, 2 * rest + scale)
    # Entries are at most their sizes, so all are finite where those are.
    at = np.flatnonzero(np.isfinite(sizes + turned_sizes + levels) & (levels > rest))
    step = 2.0**-20
    for _ in range(_TRIES):
        if not len(at):
            break
        level = levels[at]
        room = (level - rest[at]) * (1 - 2.0**-50)
        share = (1 + _BETA) * covered.rest**2 / room * _UP
        overlap = (1 + 1 / _BETA) * covered.overlap**2 / room * _UP
        moved = share * turned_sizes[at]
        error = rounding * (sizes[at] + moved) * _UP
        error += overlap + 4 * UNIT_ROUNDOFF * (level + scale[at] + moved)
        whole = forms[at] + share[:, None, None] * turned[at]
        trial = np.negative(whole)
        trial[:, range(size), range(size)] += level[:, None]
        good = are_positive_semidefinite(trial, error * _UP)
        proved[at[good]] = level[good]
        at, whole = at[~good], whole[~good]
        levels[at] = np.maximum(levels[at], np.linalg.eigvalsh(whole)[:, -1]) * (1 + step)
        step *= 4
    return proved
