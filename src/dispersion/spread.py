"""How far the logits of one row can spread: T8, T9 and T10 for a head in normal form.

The bounds hold at every context length and, for rotated heads, at every rotation angle ("free
phases"). `offsets.py` has the bound over real offsets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dispersion import refine, rigor, scaling
from dispersion.cholesky import gamma, is_positive_semidefinite
from dispersion.ellipsoid import Ellipsoid, best_weight, cover
from dispersion.errors import ArgumentError

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

    """

    spread: float
    level: float
    theorem: str


def spread_bound(head: Head) -> SpreadBound:
    """Certified bound on the spread of a head's rows, soft cap included (T8, T9, T10).

    Without rotation the bound is attained (T9, **tight** up to rounding); with rotation it is
    0 to about 5 % above the supremum over free phases (T10, **upper**), and equal to it for
    gain-only headwise or layerwise RMS QK norm.

    Raises:
        ArgumentError: no norm caps the head's inputs, so no finite bound exists.

    """
    if head.query is None or head.key is None:
        msg = "head must have a norm cap on queries and keys. Got an unbounded head."
        raise ArgumentError(msg)
    theorem = "T10" if _rotated(head) else "T9"
    if _only_gains(head.query, head.key):
        spread = _gain_spread(head, head.query, head.key)
    else:
        norm = _rotated_norm(head, head.query, head.key) if _rotated(head) else None
        norm = joint_norm(head.query, head.key) if norm is None else norm
        spread = 2 * head.scale.upper * norm * _UP
    level = (spread / 2 + head.scale.upper * _constant_level(head)) * _UP
    if head.soft_cap is not None:
        spread = rigor.capped_spread(spread, head.soft_cap).upper
        level = rigor.capped_spread(2 * level, head.soft_cap).upper / 2 * _UP
    return SpreadBound(spread, level, theorem)


def product_bound(head: Head) -> float:
    """The looser bound 2·s·max‖q‖·max‖k‖ of Veličković et al., Prop. 3.1. **Upper.**"""
    if head.query is None or head.key is None:
        return math.inf
    spread = rigor.product(2, head.scale, head.query.norm_upper, head.key.norm_upper).upper
    if head.soft_cap is not None:
        return rigor.capped_spread(spread, head.soft_cap).upper
    return spread


def rotated_mask(head: Head) -> NDArray[np.bool_]:
    """The coordinates that positions turn: on the others a key bias cancels from the spread."""
    size = head.key.head_dim if head.key is not None else 0
    mask = np.zeros(size, dtype=np.bool_)
    if head.rotary is not None:
        mask[head.rotary.pairs] = True
    return mask


def rotated_offset(head: Head) -> NDArray[np.float64] | None:
    """The part of the key bias that the spread sees, or None where it is zero."""
    if head.key is None or head.key.offset is None:
        return None
    offset = np.where(rotated_mask(head), head.key.offset, 0.0)
    return offset if np.any(offset) else None


def joint_norm(query: BallImage, key: BallImage) -> float:
    """Upper bound on max‖ρ_k Cᵀ(ρ_q A u + a)‖ over ‖u‖ ≤ 1 (T9). **Tight** up to rounding."""
    steps = _equilibration(query.gram, key.gram)
    keys = _rescale(cover(key, keep=np.zeros(key.head_dim, dtype=np.bool_)), steps)
    root, excess = factor(keys)
    weight = 0.5
    if query.offset is not None and np.any(query.offset):
        radius = query.radius.upper
        left = root.T / steps
        weight = best_weight(left @ (query.gram * radius**2) @ left.T, left @ query.offset)
    queries = _rescale(cover(query, weight), 1 / steps)
    norm = queries.image_norm_upper(root.T) * math.sqrt(excess) * _UP
    # What the stored key matrix lacks of the exact one, times the largest query.
    return (norm + keys.slack * queries.norm_upper()) * _UP if keys.slack else norm


def _rotated(head: Head) -> bool:
    return head.rotary is not None and len(head.rotary.frequencies) > 0


def _rotated_norm(head: Head, query: BallImage, key: BallImage) -> float:
    """Upper bound on max |⟨Rq, R′k⟩| over both balls and all rotations, the bias c_rot in k."""
    assert head.rotary is not None
    rotary = head.rotary
    offset = rotated_offset(head)
    groups = _groups(head)
    mask = rotated_mask(head)
    gram_q, gram_k = query.gram * query.radius.upper**2, key.gram * key.radius.upper**2
    if len(rotary.unrotated) == 0:
        found = scaling.minimise(gram_q, gram_k, query.offset, offset, groups)
        scales, inverse = found.scales, 1 / found.scales
        weight_q = _polish(gram_q, query.offset, inverse, found.query_weight)
        weight_k = _polish(gram_k, offset, scales, found.key_weight)
        queries = cover(query, weight_q)
        keys = cover(key, weight_k, keep=mask)
        return refine.rotated_norm(queries, keys, scales, rotary.pairs)
    return _partly_rotated_norm(query, key, offset, groups, rotary.unrotated, mask)


def _partly_rotated_norm(
    query: BallImage,
    key: BallImage,
    offset: NDArray[np.float64] | None,
    groups: NDArray[np.intp],
    unrotated: NDArray[np.intp],
    mask: NDArray[np.bool_],
) -> float:
    gram_q, gram_k = query.gram * query.radius.upper**2, key.gram * key.radius.upper**2
    forward, backward = np.eye(len(groups)), np.eye(len(groups))
    block = np.ix_(unrotated, unrotated)
    with np.errstate(all="ignore"):
        found_blocks = scaling.balance(gram_q[block], gram_k[block])
    if all(np.all(np.isfinite(x)) and np.max(np.abs(x)) < 2.0**200 for x in found_blocks):
        forward[block], backward[block] = found_blocks
    found = scaling.minimise(
        forward @ gram_q @ forward.T,
        backward @ gram_k @ backward.T,
        None if query.offset is None else forward @ query.offset,
        None if offset is None else backward @ offset,
        groups,
    )
    queries = cover(query, found.query_weight)
    keys = cover(key, found.key_weight, keep=mask)
    # Keys lie in the ellipsoid of forwardᵀ diag(1/s), which commutes with the rotations.
    factor = forward.T / found.scales
    guess = float(
        np.linalg.eigvalsh(
            (found.scales[:, None] * backward) @ keys.gram @ (found.scales[:, None] * backward).T
        )[-1]
    )
    excess = _domination(keys, factor, guess)
    if math.isinf(excess):
        return queries.norm_upper() * keys.norm_upper() * _UP
    norm = queries.image_norm_upper(factor.T) * math.sqrt(excess) * _UP
    return (norm + keys.slack * queries.norm_upper()) * _UP if keys.slack else norm


def _polish(
    gram: NDArray[np.float64],
    offset: NDArray[np.float64] | None,
    scales: NDArray[np.float64],
    weight: float,
) -> float:
    if offset is None or not np.any(offset):
        return weight
    return best_weight(scales[:, None] * gram * scales, scales * offset)


def _groups(head: Head) -> NDArray[np.intp]:
    """Labels of coordinates: the two of a rotated pair share one, every other has its own."""
    groups = np.arange(head.key.head_dim if head.key is not None else 0, dtype=np.intp)
    if head.rotary is not None:
        groups[head.rotary.pairs[:, 1]] = groups[head.rotary.pairs[:, 0]]
    return np.asarray(np.unique(groups, return_inverse=True)[1])


def _only_gains(query: BallImage, key: BallImage) -> bool:
    """Whether both images are norms with gains and nothing else (RMS QK norm, L2 norm)."""
    return all(
        ball.is_diagonal and ball.offset is None and ball.offset_error is None
        for ball in (query, key)
    )


def _gain_spread(head: Head, query: BallImage, key: BallImage) -> float:
    """The closed form 2·s·ρ_q·ρ_k·max over pairs of max|g_q|·max|g_k|, one rounding. **Tight.**"""
    groups = _groups(head)
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


def _equilibration(query: NDArray[np.float64], key: NDArray[np.float64]) -> NDArray[np.float64]:
    """Powers of two e: rows of A divided by e and of C multiplied by e have similar norms."""
    a, c = np.sqrt(np.diag(query)), np.sqrt(np.diag(key))
    usable = (a > 0) & (c > 0)
    ratio = np.where(usable, a, 1.0) / np.where(usable, c, 1.0)
    return np.asarray(2.0 ** np.round(0.5 * np.log2(ratio)))


def _rescale(ellipsoid: Ellipsoid, steps: NDArray[np.float64]) -> Ellipsoid:
    """diag(steps) applied to an ellipsoid; exact for powers of two."""
    return Ellipsoid(
        steps[:, None] * ellipsoid.gram * steps,
        steps * ellipsoid.sizes,
        ellipsoid.coefficient,
        None if ellipsoid.row_error is None else steps * ellipsoid.row_error,
    )


def factor(ellipsoid: Ellipsoid) -> tuple[NDArray[np.float64], float]:
    """A float L and κ with κ L Lᵀ ⪰ F Fᵀ, proved; κ exceeds 1 by rounding only."""
    gram = ellipsoid.gram
    size = len(gram)
    trace = float(np.trace(gram))
    if trace == 0.0 and ellipsoid.error == 0.0:
        return np.zeros((size, size)), 1.0
    shift = 4 * (ellipsoid.error + gamma(2 * size + 16) * 4 * trace)
    while True:
        try:
            found = np.asarray(np.linalg.cholesky(gram + shift * np.eye(size)), dtype=np.float64)
        except np.linalg.LinAlgError:
            shift *= 4
            continue
        if _dominates(ellipsoid, found, 1.0):
            return found, 1.0
        shift *= 4


def _domination(ellipsoid: Ellipsoid, factor: NDArray[np.float64], guess: float) -> float:
    """A κ near `guess` with κ·factor factorᵀ ⪰ F Fᵀ, proved; inf where none is found."""
    step = 2.0**-36
    while step < 2.0**20:
        excess = guess * (1 + step)
        if _dominates(ellipsoid, factor, excess):
            return excess
        step *= 4
    return math.inf


def _dominates(ellipsoid: Ellipsoid, factor: NDArray[np.float64], excess: float) -> bool:
    size = len(factor)
    product = factor @ factor.T
    squares = float(np.einsum("ij,ij->", factor, factor))
    error = ellipsoid.error + gamma(size + 8) * (
        excess * squares + float(np.abs(np.diag(ellipsoid.gram)).sum())
    )
    return is_positive_semidefinite(product * excess - ellipsoid.gram, error * _UP)


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
