"""Ellipsoids that hold what a norm leaves of vectors that do not point everywhere.

A QK norm makes y = t p/‖p‖ of p = P x + o, ‖x‖ ≤ 1, with some 0 ≤ t ≤ 1 for its ε (the gain comes
later). Where o is large, p lies in a cone, and where P has few columns, in a subspace.

**Statement.** Let every p be B z with z = (x, 1), ‖x‖ ≤ 1 (any z at all if λ = 0), and
J = diag(−I, 1). For a matrix S and numbers κ > 0, λ ≥ 0 with  BᵀB − (S B)ᵀ(S B)/κ − λ J ⪰ 0:

(i) ‖S y‖² ≤ κ.

(ii) Let s be the last row of S and SᵀS + θ s sᵀ ⪰ σ I, θ > 0. Where s·p > 0 for all p and t ≥ t₀,
c ≤ s·y ≤ ‖s‖ for c = t₀ √max(0, (σ − κ)/θ).

(iii) For r ≥ 1 let S₂ be S with r s as last row, m = (r² − 1)(c + ‖s‖)/(2 r²) and S₂ y₀ = r m e, e
the last unit vector. Then ‖S₂ (y − y₀)‖² ≤ κ − (r² − 1) c ‖s‖ + r² m².

**Proof.** (i) zᵀJz = 1 − ‖x‖² ≥ 0, so ‖S p‖² ≤ κ ‖p‖² (the S-lemma), and t² ≤ 1. (ii) For p of norm
1, σ ≤ ‖S p‖² + θ (s·p)² ≤ κ + θ (s·p)². (iii) Add r² − 1 times (s·y − c)(s·y − ‖s‖) ≤ 0 to (i) and
complete the square.

For a cone, o oᵀ − P Pᵀ has one positive eigenvalue l, with eigenvector v, and others −l_i, with
v_i: (v·p)²/l ≥ Σ (v_i·p)²/l_i. So S has the rows √(1 + a l/l_i) v_i and √(1 − a) v, 0 < a < 1, and
λ = a l; κ exceeds 1 by rounding alone. For a subspace λ = 0, and the rows across it are long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dispersion.cholesky import UNIT_ROUNDOFF, gamma, is_positive_semidefinite, norm_upper
from dispersion.covers import factor
from dispersion.ellipsoid import Ellipsoid, cover

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.head import BallImage

    Matrix = NDArray[np.float64]

_UP, _DOWN = 1 + 2.0**-40, 1 - 2.0**-40
_GROWN = 2.0**-20  # by how much cones are widened, of their axis's eigenvalue
_SHORTEST = 2.0**-10  # of ‖o‖²: cones with a smaller l are no use
_ACROSS = 2.0**13  # lengths of rows across a subspace
_LOOSEST = 2.0**-8  # κ − 1
_SMALLEST, _LARGEST = 2.0**-200, 2.0**200


@dataclass(frozen=True, eq=False)
class Section:
    """Points matrix @ u + offset, ‖u‖ ≤ 1, that hold all y; the offset is None for zero."""

    matrix: Matrix
    offset: Matrix | None


@dataclass(frozen=True, eq=False)
class Cone:
    """B with a bound on what it lacks, and the rows that S is made of.

    Attributes:
        image: the floats B, shape (n, m).
        error: bound on the Frobenius norm of what the exact B is off by.
        rows: orthonormal but for rounding, shape (n, n), the axis v last.
        levels: l_i, and l last; None for a subspace of `inside` dimensions, whose rows come last.
        inside: that number; 0 for a cone.

    """

    image: Matrix
    error: float
    rows: Matrix
    levels: Matrix | None
    inside: int = 0

    def section(
        self, share: float = 0.5, stretch: float = 1.0, *, eps: float = 0.0
    ) -> Section | None:
        """The ellipsoid of one choice of numbers; None where it is not proved.

        Args:
            share: a of a cone, between 0 and 1.
            stretch: r, a power of two (so that rows stay exact), 1 for an ellipsoid around zero.
            eps: n times the ε of the norm: t = ‖p‖/√(‖p‖² + eps).

        """
        lengths = np.full(len(self.rows), _ACROSS)
        level = 0.0
        if self.levels is None:
            lengths[len(lengths) - self.inside :] = 1.0
        else:
            level = share * float(self.levels[-1])
            lengths = np.sqrt(1 + level / self.levels)
            lengths[-1] = math.sqrt(1 - share)
        rows = lengths[:, None] * self.rows
        excess = _excess(self.image, self.error, rows, level)
        if excess is None:
            return None
        if stretch == 1.0 or self.levels is None:
            return _section(rows, lengths, self.rows, math.sqrt(excess) * _UP, 0.0)
        least = self._least(rows, share, excess, eps)
        most = norm_upper(rows[-1])
        more = stretch * stretch - 1
        middle = more * (least + most) / (2 * stretch * stretch)
        square = excess - more * least * most + (stretch * middle) ** 2
        square += 32 * UNIT_ROUNDOFF * (excess + 2 * more * most * most)
        rows, lengths = rows.copy(), lengths.copy()
        rows[-1] *= stretch
        lengths[-1] *= stretch
        return _section(rows, lengths, self.rows, math.sqrt(square) * _UP, stretch * middle)

    def _least(self, rows: Matrix, share: float, excess: float, eps: float) -> float:
        """A lower bound on s·y, statement (ii); −‖s‖ where none is proved."""
        assert self.levels is not None
        last, image = rows[-1], self.image
        rounding = gamma(len(last) + 4) * norm_upper(last) * norm_upper(image.ravel())
        lowest = float(last @ image[:, -1]) - norm_upper(last @ image[:, :-1]) - 2 * rounding
        sigma = 1 + share * float(self.levels[-1]) / float(self.levels[:-1].max())
        theta = sigma / (1 - share) - 1
        whole = rows.T @ rows + theta * np.outer(last, last)
        size = float(np.einsum("ij,ij->", rows, rows)) + theta * float(last @ last)
        error = gamma(len(rows) + 8) * size * _UP
        sigma = sigma * (1 - 2.0**-30) - 4 * error
        shifted = whole - sigma * np.eye(len(whole))
        error += 4 * UNIT_ROUNDOFF * (size + sigma)
        if lowest <= 0 or sigma <= excess or not is_positive_semidefinite(shifted, error * _UP):
            return -norm_upper(last)
        shortest = lowest / norm_upper(last)  # of p
        part = shortest / math.sqrt(shortest * shortest + eps)
        return part * math.sqrt((sigma - excess) / theta) * _DOWN


def cone_of(points: BallImage, *, centred: bool = False, bounded: bool = True) -> Cone | None:
    """What vectors p of a ball image have in common; None where they may point anywhere.

    Args:
        points: the vectors that are normalised, shape (n, r) with an offset or none.
        centred: whether only inputs without mean count (LayerNorm in front).
        bounded: whether the radius counts; else inputs may have any size, as without a norm.

    """
    offset, moving = points.offset, points.matrix
    if len(moving) == 1 or not _in_range(points):
        return None
    around = offset is not None and bool(np.any(offset))
    if around and bounded:
        found = _proper_cone(points, np.asarray(offset))
        if found is not None:
            return found
    size, width = moving.shape
    if width - centred + around >= size:
        return None
    image, error = moving, np.zeros(size) if points.row_error is None else points.row_error
    if centred:
        # The last input is minus the sum of the others; row errors cover both terms.
        image, error = moving[:, :-1] - moving[:, -1:], math.sqrt(width) * error
    error = error + 4 * UNIT_ROUNDOFF * math.sqrt(width) * np.sqrt(np.vecdot(moving, moving))
    lack = norm_upper(error) * _UP
    scale = float(np.linalg.norm(image)) or 1.0
    if around:
        # Columns stand for themselves here, so any length will do.
        assert offset is not None
        unit = 2.0 ** round(math.log2(scale / float(np.linalg.norm(offset))))
        image = np.column_stack([image, unit * offset])
        if points.offset_error is not None:
            lack += unit * norm_upper(points.offset_error) * _UP
    vectors = np.linalg.svd(image)[0]
    inside = image.shape[1]
    return Cone(image, lack, np.ascontiguousarray(vectors[:, ::-1].T), None, inside)


def _in_range(points: BallImage) -> bool:
    """Whether squares of sizes, and quotients of them, are float64."""
    sizes = [float(np.linalg.norm(points.matrix))]
    if points.offset is not None and np.any(points.offset):
        sizes.append(float(np.linalg.norm(points.offset)))
    return all(_SMALLEST < size < _LARGEST for size in sizes)


def _proper_cone(points: BallImage, offset: Matrix) -> Cone | None:
    """The cone around the offset; None where the ball image holds zero, or nearly so."""
    plain = cover(points, keep=np.zeros(len(offset), dtype=np.bool_))
    slack = plain.slack
    if points.offset_error is not None:
        slack = (slack + norm_upper(points.offset_error)) * _UP
    length = float(offset @ offset)
    try:
        level = float(np.linalg.eigvalsh(np.outer(offset, offset) - plain.gram)[-1])
        # (1 + τ) F Fᵀ + (1 + 1/τ) slack² I covers the sum of both.
        grown = max(_GROWN * level, (1 + 1 / _GROWN) * slack * slack * _UP)
        if not (level > _SHORTEST * length > 0 and grown < level / 16 < math.inf):
            return None
        gram = plain.gram * (1 + 2 * _GROWN)
        gram[np.diag_indices_from(gram)] += grown
        sizes = np.sqrt(plain.sizes**2 * (1 + 2 * _GROWN) + grown) * _UP
        wider = Ellipsoid(gram, sizes, plain.coefficient + 8 * UNIT_ROUNDOFF, None)
        root, excess = factor(wider)
        assert excess == 1.0
        values, vectors = np.linalg.eigh(np.outer(offset, offset) - root @ root.T)
    except np.linalg.LinAlgError:
        return None
    if not (values[-1] > _SHORTEST * length and values[:-1].max() < 0):
        return None
    if vectors[:, -1] @ offset < 0:
        vectors[:, -1] *= -1
    image = np.column_stack([root, offset])
    return Cone(image, 0.0, np.ascontiguousarray(vectors.T), np.abs(values))


def _excess(image: Matrix, error: float, rows: Matrix, level: float) -> float | None:
    """A κ > 1, about 1, of statement (i), or None where none is proved."""
    size = norm_upper(image.ravel())
    seen = rows @ image
    off = (gamma(len(rows) + 4) * size + error) * np.sqrt(np.vecdot(rows, rows)) * _UP
    lengths = np.sqrt(np.vecdot(seen, seen)) * _UP
    rounding = gamma(len(rows) + 8)
    squares = float(lengths @ lengths) * _UP
    lack = float(2 * lengths @ off + off @ off) + rounding * squares
    lack += rounding * size * size + error * (2 * size + error)
    lack += 8 * UNIT_ROUNDOFF * (size * size + squares + level)
    whole, part = image.T @ image, seen.T @ seen
    if level:
        whole[np.diag_indices_from(whole)] += level
        whole[-1, -1] -= 2 * level
    if not math.isfinite(lack):
        return None
    step = 2.0**-32
    while step <= _LOOSEST:
        if is_positive_semidefinite(whole - (1 - step) * part, lack * _UP):
            return 1 / (1 - step) * _UP
        step *= 16
    return None


def _section(
    rows: Matrix, lengths: Matrix, unit_rows: Matrix, radius: float, middle: float
) -> Section | None:
    """{y : ‖S₂ y − middle · e‖ ≤ radius} as an image of the ball, by an inverse that is proved."""
    inverse = unit_rows.T / lengths
    rounding = gamma(len(rows) + 8)
    defect = rows @ inverse
    defect[np.diag_indices_from(defect)] -= 1
    lack = norm_upper(defect.ravel())
    lack += rounding * norm_upper(np.sqrt(np.vecdot(rows, rows))) * norm_upper(inverse.ravel())
    if not lack < _LOOSEST:
        return None
    offset = None
    if middle:
        # The exact middle is off by a few roundings, its place by what the rows show.
        offset = inverse[:, -1] * middle
        there = rows @ offset
        there[-1] -= middle
        radius += norm_upper(there) + 16 * UNIT_ROUNDOFF * abs(middle)
        radius += rounding * norm_upper(rows.ravel()) * norm_upper(offset)
    return Section(inverse * (radius / (1 - lack) * _UP), offset)
