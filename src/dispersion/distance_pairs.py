"""Logits with products of tables of distances (DeBERTa): the largest difference within a row.

Let the key at index δ of two tables have the logit ⟨q, k + K_δ⟩ + ⟨k, Q_δ⟩, q = F z + a and
k = C v + c, ‖z‖, ‖v‖ ≤ 1. With N = CᵀF, m_δ = Cᵀ(a + Q_δ), b_δ = FᵀK_δ and
κ_δ = ⟨a, K_δ⟩ + ⟨c, Q_δ⟩ the largest difference of keys at δ and ε is the largest over ‖z‖ ≤ 1 of

    ‖N z + m_δ‖ + ‖N z + m_ε‖ + ⟨b_δ − b_ε, z⟩ + κ_δ − κ_ε,

since ⟨q, c⟩ cancels and both keys take their best v.

Statement. For all s, t > 0 and every μ above (s + t)·λ_max(NᵀN) it is at most

    μ + 1/4s + 1/4t + s‖m_δ‖² + t‖m_ε‖² + κ_δ − κ_ε + hᵀ(μI − (s + t)NᵀN)⁻¹h,

h = Nᵀ(s m_δ + t m_ε) + (b_δ − b_ε)/2.

Proof. ‖x‖ ≤ s‖x‖² + 1/4s for every s > 0; what remains is zᵀ(s + t)NᵀN z + 2hᵀz and a constant,
and with B = μI − (s + t)NᵀN ≻ 0, 2hᵀz − zᵀBz ≤ hᵀB⁻¹h while zᵀ(μI)z ≤ μ.

In the eigenbasis of NᵀN that bound is a sum over coordinates for which h splits into a part of δ
and one of ε, so that one choice of s, t, μ bounds all pairs by one matrix product. The pair that
is bounded worst gives the next choice, until that pair's own best choice bounds all others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.cholesky import UNIT_ROUNDOFF, gamma, norm_upper
from dispersion.covers import equilibration, factor, rescale
from dispersion.ellipsoid import cover
from dispersion.embedding import norms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.ellipsoid import Ellipsoid
    from dispersion.embedding import States
    from dispersion.head import BallImage

    Matrix = NDArray[np.float64]

_UP = 1 + 2.0**-46
_ROUNDS = 200
_ENOUGH = 1e-8  # of the largest pair's bound: how far others may exceed it
_STEPS = 60


@dataclass(frozen=True, eq=False)
class Side:
    """The keys at every index, for z in the eigenbasis of NᵀN.

    Attributes:
        line: Nᵀm, shape (indices, head_dim); `line_error` the 2-norms of what rows lack.
        pull: b, shape (indices, head_dim).
        square: ‖m‖², rounded up, shape (indices,).
        constant: κ, shape (indices,).
        slack: what all that is left out adds to a logit at each index, shape (indices,).
        weights: upper bounds on the eigenvalues, shape (head_dim,).
        radius: of the ball in which z lies, a little above 1.
    """

    line: Matrix
    line_error: Matrix
    pull: Matrix
    square: Matrix
    constant: Matrix
    slack: Matrix
    weights: Matrix
    radius: float


@dataclass(frozen=True)
class Dual:
    """s, t and μ."""

    first: float
    second: float
    level: float


def prepare(
    query: BallImage, key: BallImage, keys: States, queries: States, levels: States | None = None
) -> Side:
    """What all pairs have in common.

    Args:
        query, key: the ball images, of equal head_dim.
        keys, queries: the tables K and Q, (indices, head_dim), with errors of their rows.
        levels: constants to be added to κ, (indices, 1), or None.
    """
    size = query.head_dim
    steps = equilibration(query.gram, key.gram)  # powers of two: all products below are exact
    far = float(np.max(np.concatenate([steps, 1 / steps])))
    nothing = np.zeros(size, dtype=np.bool_)
    root, query_slack = _factor(rescale(cover(query, keep=nothing), 1 / steps))
    image, key_slack = _factor(rescale(cover(key, keep=nothing), steps))
    at, behind = query.offset_point, key.offset_point
    query_slack += at.error * far
    start, offset = at.value / steps, behind.value * steps
    table_k, table_q = keys.value * steps, queries.value / steps
    most_q = cover(query).norm_upper(1 / steps)
    most_k = cover(key).norm_upper(steps)
    sizes_k, sizes_q = norms(table_k), norms(table_q)
    few = gamma(4 * size + 32)
    length, width = _frobenius(image), _frobenius(root)

    through = image.T @ root
    vectors = np.linalg.eigh(through.T @ through)[1]
    defect = _frobenius(vectors.T @ vectors - np.eye(size)) + few * size
    radius = _UP / math.sqrt(1 - defect)
    spanned = _frobenius(vectors)
    product = through @ vectors
    product_error = few * length * width * spanned
    gram = product.T @ product
    weights = np.diag(gram).copy()
    rest = _frobenius(gram - np.diag(weights)) + few * _frobenius(product) ** 2
    weights = (np.maximum(weights, 0.0) + rest) * _UP

    shifted = table_q + start
    sizes_s = norms(shifted)
    middle = shifted @ image
    sizes_m = norms(middle)
    slack = product_error * radius + few * sizes_s * length  # N z + m
    slack = slack + length * (query_slack + few * sizes_s)
    slack = slack + key_slack * (most_q + sizes_q)
    slack = slack + keys.error * far * most_q + queries.error * far * most_k
    slack = slack + few * sizes_k * width * spanned * radius + sizes_k * query_slack
    slack = slack + sizes_q * behind.error * far
    constant = table_k @ start + table_q @ offset
    slack = slack + few * (sizes_k * norm_upper(start) + sizes_q * norm_upper(offset))
    if levels is not None:
        constant = constant + levels.value[:, 0]
        slack = slack + levels.error + few * np.abs(levels.value[:, 0])
    return Side(
        line=middle @ product,
        line_error=few * sizes_m * _frobenius(product),
        pull=table_k @ (root @ vectors),
        square=sizes_m**2 * _UP,
        constant=constant,
        slack=slack * _UP,
        weights=weights,
        radius=radius,
    )


def _factor(ellipsoid: Ellipsoid) -> tuple[Matrix, float]:
    """A float root that covers the ellipsoid, and what points of the exact set lie outside by."""
    root, excess = factor(ellipsoid)
    assert excess == 1.0
    return root, ellipsoid.slack


def _frobenius(matrix: Matrix) -> float:
    return norm_upper(matrix.ravel())


def largest_difference(side: Side, allowed: NDArray[np.bool_]) -> float:
    """Upper bound on the difference of two logits of a row, over pairs of indices. **Upper.**

    Before the logit scale. The excess is that of convex relaxation: 0 to about 2 % on random heads.

    Args:
        side: the prepared head.
        allowed: shape (indices, indices), which pairs (top, bottom) a row can hold.
    """
    rows, columns = np.flatnonzero(allowed.any(axis=1)), np.flatnonzero(allowed.any(axis=0))
    if not len(rows):
        return 0.0
    bounds = np.where(allowed[np.ix_(rows, columns)], math.inf, -math.inf)
    pair = _first(side, rows, columns, bounds)
    settled = 0.0  # the largest bound that its own best choice gives a pair
    for _ in range(_ROUNDS):
        found = _bounds(side, tune(side, *pair), rows, columns)
        bounds = np.minimum(bounds, found)
        place = int(np.searchsorted(rows, pair[0])), int(np.searchsorted(columns, pair[1]))
        settled = max(settled, float(bounds[place]))
        # Pairs that cannot decide any more are left out.
        open_pairs = bounds > settled * (1 + _ENOUGH)
        if not open_pairs.any():
            return settled * (1 + _ENOUGH) * _UP
        kept = open_pairs.any(axis=1), open_pairs.any(axis=0)
        bounds = bounds[np.ix_(*kept)]
        rows, columns = rows[kept[0]], columns[kept[1]]
        i, j = np.unravel_index(int(np.argmax(bounds)), bounds.shape)
        pair = int(rows[i]), int(columns[j])
    return max(float(bounds.max()), settled * (1 + _ENOUGH) * _UP)


def _first(
    side: Side, rows: NDArray[Any], columns: NDArray[Any], bounds: Matrix
) -> tuple[int, int]:
    """A pair that may well be the worst, to begin with."""
    sizes = np.sqrt(side.square)
    top, bottom = sizes + side.constant, sizes - side.constant
    guess = np.where(
        np.isinf(bounds) & (bounds > 0), top[rows][:, None] + bottom[columns], -math.inf
    )
    i, j = np.unravel_index(int(np.argmax(guess)), guess.shape)
    return int(rows[i]), int(columns[j])


def _bounds(side: Side, dual: Dual, rows: NDArray[Any], columns: NDArray[Any]) -> Matrix:
    """The statement's bound for every pair of a row and a column index, rounded up."""
    s, t, level = dual.first, dual.second, dual.level
    gaps = level - (s + t) * side.weights
    gaps = gaps * (1 - 2.0**-40) - 8 * UNIT_ROUNDOFF * level
    if not np.all(gaps > 0):
        return np.full((len(rows), len(columns)), math.inf)
    roots = np.sqrt(gaps)
    few = gamma(8 * len(gaps) + 64)
    parts, sums = [], []
    for weight, at, sign in ((s, rows, 1.0), (t, columns, -1.0)):
        line, pull = weight * side.line[at], side.pull[at] / 2
        part = (line + sign * pull) / roots
        moduli = (np.abs(line) + np.abs(pull)) / roots
        own = np.einsum("ij,ij->i", part, part)
        plain = weight * (side.square[at] + 2 * side.radius * side.line_error[at])
        reach = np.einsum("ij,ij->i", moduli, moduli)
        rounding = few * (4 * reach + plain + np.abs(side.constant[at]) + side.slack[at])
        sums.append(own + plain + sign * side.constant[at] + side.slack[at] + rounding)
        parts.append(part)
    fixed = (level * side.radius**2 + 1 / (4 * s) + 1 / (4 * t)) * _UP
    whole = sums[0][:, None] + sums[1] + 2 * (parts[0] @ parts[1].T)
    # Sums of terms of either sign: each is off by a few roundings of their moduli.
    moduli = np.abs(sums[0])[:, None] + np.abs(sums[1]) + fixed
    return np.asarray((fixed + whole) + few * moduli)


def tune(side: Side, top: int, bottom: int) -> Dual:
    """The best s, t and μ of one pair (floats only)."""
    from scipy.optimize import minimize

    lines = side.line[[top, bottom]]
    gap = (side.pull[top] - side.pull[bottom]) / 2
    squares = side.square[[top, bottom]]
    best = (math.inf, Dual(1.0, 1.0, math.inf))

    def value(x: Matrix) -> tuple[float, Matrix]:
        nonlocal best
        both = np.exp(x)
        h = both @ lines + gap
        level, z = _level(float(both.sum()) * side.weights, h)
        form = float((side.weights * z) @ z)
        inside = form + 2 * (lines @ z) + squares
        total = level + float(h @ z) + float((both * squares).sum() + (0.25 / both).sum())
        if total < best[0]:
            best = total, Dual(float(both[0]), float(both[1]), level)
        return total, both * (inside - 0.25 / both**2)

    size = math.sqrt(float(side.weights.max()) + float(squares.mean())) or 1e-120
    start = np.full(2, -math.log(2 * size))
    with np.errstate(all="ignore"):
        minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
    return best[1]


def _level(weights: Matrix, line: Matrix) -> tuple[float, Matrix]:
    """About the μ that minimises μ + lineᵀ(μI − weights)⁻¹line, and the z it belongs to."""
    top = float(weights.max())
    length = float(np.linalg.norm(line))
    least = top * (1 + 1e-9) + 1e-300
    level = top + length + 1e-300
    for _ in range(60):
        gaps = level - weights
        z = line / gaps
        size = float(np.linalg.norm(z))
        if size == 0.0:
            break
        # Newton's step for 1/‖z‖ = 1, which is almost linear in μ.
        step = (size - 1) * size**2 / float((z * z / gaps).sum())
        moved = max(level + step, least, (level + top) / 2 if step < 0 else least)
        if abs(moved - level) <= 1e-14 * level:
            break
        level = moved
    level = max(level, least)
    return level, line / (level - weights)
