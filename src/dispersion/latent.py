"""Latent attention: keys whose two parts are capped apart, covered by one ball image.

`coupled.py` goes on from here where the parts, which come of one state, are tied closely.

Statement. Let a key be (x, y), x = ρ₁ C₁ v₁ + c₁ with ‖v₁‖ ≤ 1 (from a normalised latent) and
y = ρ₂ C₂ v₂ + c₂ with ‖v₂‖ ≤ 1 (from the hidden state itself). For every share 0 < w < 1 it lies in
the ball image of  M = diag(ρ₁ C₁/√w, ρ₂ C₂/√(1−w))  with offset (c₁, c₂).

Proof. (x, y) − (c₁, c₂) = M v with v = (√w v₁, √(1−w) v₂), and ‖v‖² ≤ w + (1 − w) = 1. Nothing is
used of how the two parts depend on each other, and a factor larger than ρ/√w covers as well.

The best share loses nothing where no position turns and no query bias acts. With
α = ‖ρ₁C₁ᵀp‖ and β = ‖ρ₂C₂ᵀr‖ for a query (p, r), the largest logit is α + β = min over w of
√(α²/w + β²/(1−w)); the squares (α², β²) of a ball's queries have a convex hull on which both sides
attain their largest value at a saddle point, since √s + √t is concave and α²/w + β²/(1−w) linear
in them, and three or more input dimensions make the set itself convex (Brickman). So one number
per head is all that the cover costs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dispersion.balls import product, quotient, sqrt_enclosure
from dispersion.enclosure import Enclosure
from dispersion.head import BallImage
from dispersion.rows import scaled_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GRID = 2**20  # shares are multiples of 1/_GRID, so that both add up to 1 exactly


def joint_ball(first: BallImage, second: BallImage, share: float, *, cap: str) -> BallImage:
    """A ball image that holds every (x, y), x of `first` and y of `second`. **Upper.**

    Args:
        first, second: the two parts, `first` in front.
        share: w, the first part's share; any number gives a cover.
        cap: words for the report.

    """
    w = min(max(round(share * _GRID), 1), _GRID - 1) / _GRID
    parts = [_enlarged(ball, part) for ball, part in ((first, w), (second, 1 - w))]
    rows = [ball.head_dim for ball in parts]
    columns = [ball.matrix.shape[1] for ball in parts]
    matrix = np.zeros((sum(rows), sum(columns)))
    matrix[: rows[0], : columns[0]] = parts[0].matrix
    matrix[rows[0] :, columns[0] :] = parts[1].matrix
    return BallImage(
        matrix=matrix,
        offset=_joined([ball.offset for ball in parts], rows),
        row_error=_joined([ball.row_error for ball in parts], rows),
        offset_error=_joined([ball.offset_error for ball in parts], rows),
        cap=cap,
    )


def summed_ball(first: BallImage, second: BallImage, *, cap: str) -> BallImage:
    """A ball image that holds every x + y, x of `first` and y of `second`. **Upper.**

    ρ₁C₁v₁ + ρ₂C₂v₂ = [ρ₁C₁/√w, ρ₂C₂/√(1−w)] v with ‖v‖ ≤ 1 as above; w in proportion to the largest
    norms, so that no norm exceeds their sum.

    Args:
        first, second: ball images of one size.
        cap: words for the report.

    """
    sizes = first.norm_upper, second.norm_upper
    share = sizes[0] / (sizes[0] + sizes[1]) if sum(sizes) else 0.5
    w = min(max(round(share * _GRID), 1), _GRID - 1) / _GRID
    parts = [_enlarged(ball, part) for ball, part in ((first, w), (second, 1 - w))]

    def added(values: list[NDArray[np.float64] | None]) -> NDArray[np.float64] | None:
        known = [value for value in values if value is not None]
        return np.asarray(sum(known[1:], known[0])) * (1 + 2.0**-50) if known else None

    offsets = [ball.offset for ball in parts if ball.offset is not None]
    errors = [ball.offset_error for ball in parts]
    if len(offsets) > 1:  # the sum is rounded
        errors.append(np.abs(offsets[0] + offsets[1]) * 2.0**-52)
    return BallImage(
        matrix=np.concatenate([ball.matrix for ball in parts], axis=1),
        offset=sum(offsets[1:], offsets[0]) if offsets else None,
        row_error=added([ball.row_error for ball in parts]),
        offset_error=added(errors),
        cap=cap,
    )


def _enlarged(ball: BallImage, share: float) -> BallImage:
    """The same image without its offset enlarged by 1/√share, its radius moved into the matrix."""
    root = sqrt_enclosure(quotient(1.0, share))
    factor = Enclosure.exact(product(ball.radius, root).upper)
    bare = BallImage(matrix=ball.matrix, row_error=ball.row_error)
    grown = scaled_rows(bare, np.arange(ball.head_dim), factor)
    return BallImage(
        matrix=grown.matrix,
        offset=ball.offset,
        row_error=grown.row_error,
        offset_error=ball.offset_error,
    )


def _joined(parts: list[NDArray[np.float64] | None], rows: list[int]) -> NDArray[np.float64] | None:
    if all(part is None for part in parts):
        return None
    whole = [
        np.zeros(size) if part is None else part for part, size in zip(parts, rows, strict=True)
    ]
    return np.concatenate(whole)


def best_share(
    query: BallImage, first: BallImage, second: BallImage, pairs: NDArray[np.intp]
) -> float:
    """The share of `first` at which the joint cover bounds logits best (floats only).

    The rotated part counts through the smallest cover that gives both coordinates of a pair the
    same size, as turning demands.

    Args:
        query: the queries, of both parts.
        first, second: the keys' parts.
        pairs: shape (P, 2), rotated pairs among the coordinates of `second`.

    """
    from scipy.optimize import minimize_scalar

    size = first.head_dim
    gram_q = query.gram * query.radius.upper**2
    if query.offset is not None:
        gram_q = gram_q + np.outer(query.offset, query.offset)
    gram_k = [ball.gram * ball.radius.upper**2 for ball in (first, second)]
    if second.offset is not None:
        gram_k[1] = gram_k[1] + np.outer(second.offset, second.offset)
    if len(pairs):
        energy = np.diag(gram_k[1]).copy()
        energy[pairs] = energy[pairs].mean(axis=1, keepdims=True)
        energy += 1e-12 * energy.max() + 1e-300
        root = np.sqrt(energy)
        gram_k[1] = np.diag(energy * np.linalg.eigvalsh(gram_k[1] / np.outer(root, root))[-1])
    parts = []
    for part, gram in ((slice(None, size), gram_k[0]), (slice(size, None), gram_k[1])):
        values, vectors = np.linalg.eigh(gram)
        half = vectors * np.sqrt(np.maximum(values, 0.0))
        parts.append(gram_q[:, part] @ half)
    # λ_max of G_q^½ (K₁/w + K₂/(1−w)) G_q^½, formed once for each part.
    values, vectors = np.linalg.eigh(gram_q)
    inverse = vectors / np.sqrt(np.maximum(values, 1e-13 * max(float(values[-1]), 1e-300)))
    squares = [(inverse.T @ part) @ (inverse.T @ part).T for part in parts]

    def largest(x: float) -> float:
        w = 1 / (1 + math.exp(-x))
        return float(np.linalg.eigvalsh(squares[0] / w + squares[1] / (1 - w))[-1])

    found = minimize_scalar(
        largest, bounds=(-10.0, 10.0), method="bounded", options={"xatol": 1e-3}
    )
    return float(1 / (1 + math.exp(-found.x)))
