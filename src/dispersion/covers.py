"""Certified covers of the keys: ellipsoids {factor z + slack : ‖z‖ ≤ 1} that hold a key ball.

A cover whose shape commutes with the rotations holds the keys at every position at once (T10, T13).
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dispersion import scaling
from dispersion.cholesky import gamma, is_positive_semidefinite
from dispersion.ellipsoid import Ellipsoid, best_weight, cover

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.head import BallImage, Head

_UP = 1 + 2.0**-50


@dataclass(frozen=True, eq=False)
class Cover:
    """Keys k = factor z + r with ‖z‖ ≤ 1 and ‖r‖ ≤ slack, proved.

    Attributes:
        factor: float64, shape (head_dim, head_dim).
        slack: what the stored key matrix lacks of the exact one.
    """

    factor: NDArray[np.float64]
    slack: float = 0.0

    def norm_upper(self, queries: Ellipsoid) -> float:
        """Upper bound on |⟨q, k⟩| for queries of an ellipsoid and keys of the cover."""
        norm = queries.image_norm_upper(self.factor.T) * _UP
        return (norm + self.slack * queries.norm_upper()) * _UP if self.slack else norm


def diagonal_cover(
    key: BallImage, scales: NDArray[np.float64], weight: float, mask: NDArray[np.bool_]
) -> Cover:
    """The cover ‖S k‖ ≤ max‖S(Cv + c)‖ for scales S, with the part of the bias in `mask`."""
    norm = cover(key, weight, keep=mask).norm_upper(scales)
    # One rounding in the quotient, which _UP outweighs.
    return Cover(np.diag(norm * _UP / scales))


def partial_cover(
    query: BallImage,
    key: BallImage,
    offset: NDArray[np.float64] | None,
    groups: NDArray[np.intp],
    unrotated: NDArray[np.intp],
    mask: NDArray[np.bool_],
) -> tuple[Ellipsoid, Cover]:
    """The queries' ellipsoid and a cover of the keys where some coordinates do not turn.

    Unrotated coordinates allow any block; it is chosen so that both Gram matrices become diagonal.
    """
    gram_q, gram_k = query.gram * query.radius.upper**2, key.gram * key.radius.upper**2
    forward, backward = balanced(gram_q, gram_k, unrotated)
    found = scaling.minimise(
        forward @ gram_q @ forward.T,
        backward @ gram_k @ backward.T,
        None if query.offset is None else forward @ query.offset,
        None if offset is None else backward @ offset,
        groups,
    )
    queries = cover(query, found.query_weight)
    keys = cover(key, found.key_weight, keep=mask)
    return queries, shaped_cover(keys, found.scales, forward, backward)


def joint_norm(query: BallImage, key: BallImage) -> float:
    """Upper bound on max‖ρ_k Cᵀ(ρ_q A u + a)‖ over ‖u‖ ≤ 1 (T9). **Tight** up to rounding."""
    steps = equilibration(query.gram, key.gram)
    keys = rescale(cover(key, keep=np.zeros(key.head_dim, dtype=np.bool_)), steps)
    root, excess = factor(keys)
    weight = 0.5
    if query.offset is not None and np.any(query.offset):
        radius = query.radius.upper
        left = root.T / steps
        with np.errstate(over="ignore", invalid="ignore"):
            weight = best_weight(left @ (query.gram * radius**2) @ left.T, left @ query.offset)
    queries = rescale(cover(query, weight), 1 / steps)
    norm = queries.image_norm_upper(root.T) * math.sqrt(excess) * _UP
    # What the stored key matrix lacks of the exact one, times the largest query.
    return (norm + keys.slack * queries.norm_upper()) * _UP if keys.slack else norm


def balanced(
    gram_q: NDArray[np.float64], gram_k: NDArray[np.float64], unrotated: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """T and about T⁻ᵀ that make the unrotated blocks of T gram_q Tᵀ and T⁻ᵀ gram_k T⁻¹ diagonal."""
    forward, backward = np.eye(len(gram_q)), np.eye(len(gram_q))
    block = np.ix_(unrotated, unrotated)
    blocks: tuple[NDArray[np.float64], ...] = (np.array(np.inf),)
    # Blocks far out of range stay as they are.
    with np.errstate(all="ignore"), contextlib.suppress(np.linalg.LinAlgError):
        blocks = scaling.balance(gram_q[block], gram_k[block])
    if all(np.all(np.isfinite(x)) and np.max(np.abs(x)) < 2.0**200 for x in blocks):
        forward[block], backward[block] = blocks
    return forward, backward


def shaped_cover(
    keys: Ellipsoid,
    scales: NDArray[np.float64],
    forward: NDArray[np.float64],
    backward: NDArray[np.float64],
) -> Cover:
    """The cover of the shape that scales in balanced coordinates have."""
    # forwardᵀ diag(1/s) commutes with the rotations.
    shape = forward.T / scales
    turned = scales[:, None] * backward
    excess = domination(keys, shape, float(np.linalg.eigvalsh(turned @ keys.gram @ turned.T)[-1]))
    if math.isinf(excess):
        return Cover(np.eye(len(scales)) * (keys.norm_upper() * _UP))
    return Cover(shape * (math.sqrt(excess) * _UP), keys.slack)


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


def groups_of(head: Head) -> NDArray[np.intp]:
    """Labels of coordinates: the two of a rotated pair share one, every other has its own."""
    groups = np.arange(head.key.head_dim if head.key is not None else 0, dtype=np.intp)
    if head.rotary is not None:
        groups[head.rotary.pairs[:, 1]] = groups[head.rotary.pairs[:, 0]]
    return np.asarray(np.unique(groups, return_inverse=True)[1])


def equilibration(query: NDArray[np.float64], key: NDArray[np.float64]) -> NDArray[np.float64]:
    """Powers of two e: rows of A divided by e and of C multiplied by e have similar norms."""
    a, c = np.sqrt(np.diag(query)), np.sqrt(np.diag(key))
    usable = (a > 0) & (c > 0)
    ratio = np.where(usable, a, 1.0) / np.where(usable, c, 1.0)
    return np.asarray(2.0 ** np.round(0.5 * np.log2(ratio)))


def rescale(ellipsoid: Ellipsoid, steps: NDArray[np.float64]) -> Ellipsoid:
    """diag(steps) applied to an ellipsoid; exact for powers of two."""
    return Ellipsoid(
        steps[:, None] * ellipsoid.gram * steps,
        steps * ellipsoid.sizes,
        ellipsoid.coefficient,
        None if ellipsoid.row_error is None else steps * ellipsoid.row_error,
    )


def factor(ellipsoid: Ellipsoid) -> tuple[NDArray[np.float64], float]:
    """A float L and κ with κ L Lᵀ ⪰ F Fᵀ, proved; κ exceeds 1 by rounding only.

    Raises:
        numpy.linalg.LinAlgError: squares of the ellipsoid are out of range.

    """
    gram = ellipsoid.gram
    size = len(gram)
    trace = float(np.trace(gram))
    if trace == 0.0 and ellipsoid.error == 0.0:
        return np.zeros((size, size)), 1.0
    shift = max(4 * (ellipsoid.error + gamma(2 * size + 16) * 4 * trace), 2.0**-1000)
    while shift < math.inf:
        try:
            found = np.asarray(np.linalg.cholesky(gram + shift * np.eye(size)), dtype=np.float64)
        except np.linalg.LinAlgError:
            shift *= 4
            continue
        if _dominates(ellipsoid, found, 1.0):
            return found, 1.0
        shift *= 4
    raise np.linalg.LinAlgError


def domination(ellipsoid: Ellipsoid, factor: NDArray[np.float64], guess: float) -> float:
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
    # What overflows is not proved: the error then does, too.
    with np.errstate(over="ignore", invalid="ignore"):
        product = factor @ factor.T
        squares = float(np.einsum("ij,ij->", factor, factor))
        error = ellipsoid.error + gamma(size + 8) * (
            excess * squares + float(np.abs(np.diag(ellipsoid.gram)).sum())
        )
        return math.isfinite(error) and is_positive_semidefinite(
            product * excess - ellipsoid.gram, error * _UP
        )
