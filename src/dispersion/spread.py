"""How far the logits of one row can spread: T8, T9 and T10 for a head in normal form.

The bounds hold at every context length and, for rotated heads, at every rotation angle ("free
phases"). `offsets.py` has the bound over real offsets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dispersion import refine, rigor, scaling
from dispersion.cholesky import gamma
from dispersion.coupled import coupled_norm
from dispersion.covers import (
    groups_of,
    joint_norm,
    partial_cover,
    rotated_mask,
    rotated_offset,
)
from dispersion.ellipsoid import best_weight, cover
from dispersion.errors import ArgumentError
from dispersion.narrow import narrowed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.head import BallImage, Head

_UP = 1 + 2.0**-50


@dataclass(frozen=True)
class SpreadBound:
    """What is certified about the logits of one head's rows.

    Attributes:
        spread: upper bound on max logit − min logit of a row, in logits. **Upper.**
        level: upper bound on the modulus of any logit, biases included. **Upper.**
        theorem: "T9" or "T10".
        scales: the D-scaling behind a T10 bound, shape (head_dim,), for bounds that build on it.

    """

    spread: float
    level: float
    theorem: str
    scales: NDArray[np.float64] | None = None


def spread_bound(head: Head) -> SpreadBound:
    """Certified bound on the spread of a head's rows, soft cap included (T8, T9, T10).

    Without rotation the bound is attained (T9, **tight** up to rounding); with rotation it is
    0 to about 2 % above the supremum over free phases (T10, **upper**; more where only some of the
    coordinates turn, which refine.py leaves alone), and equal to it for gain-only headwise or
    layerwise RMS QK norm.

    Args:
        head: the head.

    Raises:
        ArgumentError: no norm caps the head's inputs, so no finite bound exists.

    """
    if head.query is None or head.key is None:
        msg = "head must have a norm cap on queries and keys. Got an unbounded head."
        raise ArgumentError(msg)
    if head.narrow is not None:
        closer = narrowed(head)
        plain = spread_bound(replace(head, narrow=None))
        return plain if closer is head else _smaller(spread_bound(closer), plain)
    theorem = "T10" if _rotated(head) else "T9"
    scales = None
    if _only_gains(head.query, head.key):
        spread = _gain_spread(head, head.query, head.key)
    else:
        if _rotated(head):
            norm, scales = _rotated_norm(head, head.query, head.key)
        else:
            norm = joint_norm(head.query, head.key)
        if head.coupled is not None:
            norm = coupled_norm(head, norm)
        spread = 2 * head.scale.upper * norm * _UP
    level = (spread / 2 + head.scale.upper * _constant_level(head)) * _UP
    if head.soft_cap is not None:
        spread = rigor.capped_spread(spread, head.soft_cap).upper
        level = rigor.capped_spread(2 * level, head.soft_cap).upper / 2 * _UP
    return SpreadBound(spread, level, theorem, scales)


def _smaller(first: SpreadBound, second: SpreadBound) -> SpreadBound:
    """What two bounds of one head say together."""
    least = min(first, second, key=lambda bound: bound.spread)
    return replace(least, level=min(first.level, second.level))


def product_bound(head: Head) -> float:
    """The looser bound 2·s·max‖q‖·max‖k‖ of Veličković et al., Prop. 3.1. **Upper.**"""
    if head.query is None or head.key is None:
        return math.inf
    spread = rigor.product(2, head.scale, head.query.norm_upper, head.key.norm_upper).upper
    if head.soft_cap is not None:
        return rigor.capped_spread(spread, head.soft_cap).upper
    return spread


def _rotated(head: Head) -> bool:
    return head.rotary is not None and len(head.rotary.frequencies) > 0


def _rotated_norm(
    head: Head, query: BallImage, key: BallImage
) -> tuple[float, NDArray[np.float64] | None]:
    """Upper bound on max |⟨Rq, R′k⟩| over both balls and all rotations, and the scales used."""
    assert head.rotary is not None
    rotary = head.rotary
    offset = rotated_offset(head)
    groups = groups_of(head)
    mask = rotated_mask(head)
    gram_q, gram_k = query.gram * query.radius.upper**2, key.gram * key.radius.upper**2
    if len(rotary.unrotated) == 0:
        found = scaling.minimise(gram_q, gram_k, query.offset, offset, groups, rough=True)
        scales, inverse = found.scales, 1 / found.scales
        weight_q = _polish(gram_q, query.offset, inverse, found.query_weight)
        weight_k = _polish(gram_k, offset, scales, found.key_weight)
        queries = cover(query, weight_q)
        keys = cover(key, weight_k, keep=mask)
        return refine.rotated_norm(queries, keys, scales, rotary.pairs, found.tops), scales
    queries, shape = partial_cover(query, key, offset, groups, rotary.unrotated, mask)
    norm = shape.norm_upper(queries)
    return min(norm, queries.norm_upper() * cover(key, keep=mask).norm_upper() * _UP), None


def _polish(
    gram: NDArray[np.float64],
    offset: NDArray[np.float64] | None,
    scales: NDArray[np.float64],
    weight: float,
) -> float:
    if offset is None or not np.any(offset):
        return weight
    return best_weight(scales[:, None] * gram * scales, scales * offset)


def _only_gains(query: BallImage, key: BallImage) -> bool:
    """Whether both images are norms with gains and nothing else (RMS QK norm, L2 norm)."""
    return all(
        ball.is_diagonal and ball.offset is None and ball.offset_error is None
        for ball in (query, key)
    )


def _gain_spread(head: Head, query: BallImage, key: BallImage) -> float:
    """The closed form 2·s·ρ_q·ρ_k·max over pairs of max|g_q|·max|g_k|, one rounding. **Tight.**"""
    groups = groups_of(head)
    largest = []
    for ball in (query, key):
        gains = np.abs(np.diag(ball.matrix))
        if ball.row_error is not None:
            gains = np.nextafter(gains + ball.row_error, np.inf)
        most = np.zeros(int(groups.max()) + 1)
        np.maximum.at(most, groups, gains)
        largest.append(most)
    return max(
        rigor.product(2, head.scale, query.radius, key.radius, float(q), float(k)).upper
        for q, k in zip(*largest, strict=True)
    )


def _constant_level(head: Head) -> float:
    """Upper bound on |⟨q, c⟩| for the part of the key bias that the spread does not see."""
    if head.query is None or head.key is None or head.key.offset is None:
        return 0.0
    seen = rotated_offset(head)
    rest = head.key.offset if seen is None else head.key.offset - seen
    size = float(np.linalg.norm(rest))
    if head.key.offset_error is not None:
        size += float(np.linalg.norm(head.key.offset_error))
    # Cheap and safe; only sinks look at levels.
    return head.query.norm_upper * size * (1 + gamma(len(rest) + 8))
