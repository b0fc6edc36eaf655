"""Queries and keys whose coordinates are clamped to [−c, c] before they turn (clip_qkv).

A clamped point need not lie in the ellipsoid the point came from: a thin one along (2, 1) holds
(2, 1) but not its clamp (1, 1) at c = 1. What clamping does keep is the order of moduli.

Statement. Let q′ be q with every coordinate clamped to [−c, c]. Then (i) |q′_i| ≤ |q_i|, hence
‖D q′‖ ≤ ‖D q‖ for every diagonal D; (ii) |q′_i| ≤ min(c, max |q_i|). So q′ lies in every
axis-parallel ellipsoid {Σ x_i²/t_i² ≤ 1} with t_i = σ/D_i, σ = max ‖D q‖ over the ellipsoid of q
(its offset included), and in those with Σ b_i²/t_i² ≤ 1, b_i = min(c, max |q_i|).

Proof. t ↦ clamp(t) moves every number towards 0, and stays within c; the two sums are then at most
Σ (D_i q_i)²/σ² ≤ 1 and Σ b_i²/t_i² ≤ 1.

With t alike for both coordinates of a rotated pair on both sides, logits are at most
max over pairs of t_q·t_k at any rotation: the D-scaled bound of T10 or the bound
Σ_pairs |b_q,pair||b_k,pair| of the boxes, whichever is smaller (ellipsoids between the two were
below both by at most 0.5 % on random heads). Where no coordinate exceeds c, clamping does nothing
and the head stays as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dispersion import scaling
from dispersion.balls import product, quotient, sqrt_enclosure, total
from dispersion.covers import groups_of
from dispersion.ellipsoid import cover
from dispersion.errors import ArgumentError
from dispersion.head import BallImage, Head

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

_UP = 1 + 2.0**-40
_DOWN = 1 - 2.0**-40


def clipped_head(head: Head, limit: float) -> Head:
    """The head with queries and keys clamped to [−limit, limit] before their rotation. **Upper.**

    Witnesses come from inputs so small that nothing is clamped; where a QK norm fixes the size of
    queries and keys there are none.

    Args:
        head: a head without `inner`; unbounded heads stay as they are.
        limit: c.

    Raises:
        ArgumentError: limit is not positive.

    """
    if not limit > 0:
        msg = f"limit must be positive. Got {limit}."
        raise ArgumentError(msg)
    if head.query is None or head.key is None:
        return head
    reach_q, reach_k = largest_coordinates(head.query), largest_coordinates(head.key)
    if max(reach_q.max(), reach_k.max()) <= limit:
        return head
    boxes = np.minimum(reach_q, limit), np.minimum(reach_k, limit)
    covers = _scaled_sizes(head, head.query, head.key), _box_sizes(head, *boxes)
    sizes = min(covers, key=lambda pair: float(np.max(pair[0] * pair[1])))
    query, key = (
        BallImage(matrix=np.diag(size), cap=f"{ball.cap}, clip {limit:g}")
        for size, ball in zip(sizes, (head.query, head.key), strict=True)
    )
    return replace(head, query=query, key=key, reach=None, inner=_unclipped(head, limit))


def largest_coordinates(ball: BallImage) -> Vector:
    """Upper bounds on |x_i| over a ball image, shape (head_dim,)."""
    sizes = ball.row_sizes if ball.row_error is None else ball.row_sizes + ball.row_error
    found = sizes * ball.radius.upper
    if ball.offset is not None:
        found = found + np.abs(ball.offset)
    if ball.offset_error is not None:
        found = found + ball.offset_error
    return np.asarray(found * _UP)


def _scaled_sizes(head: Head, query: BallImage, key: BallImage) -> tuple[Vector, Vector]:
    """Semi-axes of the covers ‖S⁻¹ q‖ ≤ σ_q and ‖S k‖ ≤ σ_k, alike within rotated pairs."""
    gram_q, gram_k = query.gram * query.radius.upper**2, key.gram * key.radius.upper**2
    with np.errstate(all="ignore"):
        found = scaling.minimise(gram_q, gram_k, query.offset, key.offset, groups_of(head))
    scales = found.scales
    if not (np.all(np.isfinite(scales)) and np.all(scales > 0)):
        scales = np.ones(len(gram_q))
    largest_q = cover(query, found.query_weight).norm_upper(1 / scales)
    largest_k = cover(key, found.key_weight).norm_upper(scales)
    # 1/scales is rounded once more here than in the norm above, which _UP outweighs.
    return scales * (largest_q * _UP), largest_k * _UP / scales


def _box_sizes(head: Head, query: Vector, key: Vector) -> tuple[Vector, Vector]:
    """Semi-axes of covers of two boxes, shared out so that their product is Σ |b_q||b_k|."""
    groups = groups_of(head)
    energy_q, energy_k = (np.bincount(groups, weights=b**2) for b in (query, key))
    floor = 1e-24 * max(float(energy_q.max()), float(energy_k.max()), 1e-200)
    energy_q, energy_k = np.maximum(energy_q, floor), np.maximum(energy_k, floor)
    weight = np.sqrt(energy_q * energy_k)
    share = weight / weight.sum()
    return (
        _covering(query, np.sqrt(energy_q / share)[groups]),
        _covering(key, np.sqrt(energy_k / share)[groups]),
    )


def _covering(box: Vector, sizes: Vector) -> Vector:
    """The semi-axes enlarged until the box is proved to lie inside: Σ b_i²/t_i² ≤ 1."""
    terms = [
        quotient(product(b, b), product(t, t))
        for b, t in zip(box.tolist(), sizes.tolist(), strict=True)
    ]
    return sizes * (sqrt_enclosure(total(*terms)).upper * _UP)


def _unclipped(head: Head, limit: float) -> Head | None:
    """The head over inputs that are so small that no coordinate reaches the limit."""
    reach = head.reach
    if reach is None or reach.query_norm is not None or reach.key_norm is not None:
        return None
    share = 1.0
    for ball in (head.query, head.key):
        assert ball is not None
        offset = largest_coordinates(replace(ball, radius=product(ball.radius, 0.0)))
        moving = largest_coordinates(replace(ball, offset=None, offset_error=None))
        if offset.max() >= limit:
            return None
        share = min(share, float(np.min((limit - offset) / np.maximum(moving, 1e-300))) * _DOWN)

    def shrunk(ball: BallImage | None) -> BallImage | None:
        return None if ball is None else replace(ball, radius=product(ball.radius, share))

    return replace(
        head,
        query=shrunk(head.query),
        key=shrunk(head.key),
        reach=replace(reach, radius=reach.radius * share),
    )
