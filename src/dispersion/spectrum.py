"""The singular values that bound any-token retrieval, certified for a head in normal form.

Without rotation they are those of s·ρ_q ρ_k AᵀC: both biases cancel. With rotation, keys at all
positions lie in one ellipsoid {F v : ‖v‖ ≤ 1} whose shape commutes with the rotations and covers
the key ball with the rotated part of its bias; queries that share one position, where their bias
cancels, then give the singular values of s·ρ_q AᵀF (theory T12, T13).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dispersion import rigor_capacity, scaling
from dispersion.capacity import log_capacity, water_level
from dispersion.cholesky import gamma, norm_upper
from dispersion.covers import (
    Cover,
    diagonal_cover,
    equilibration,
    factor,
    groups_of,
    partial_cover,
    rescale,
    rotated_mask,
    rotated_offset,
)
from dispersion.ellipsoid import best_weight, cover, unit_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.ellipsoid import Ellipsoid
    from dispersion.enclosure import Enclosure, Estimate
    from dispersion.head import BallImage, Head

_UP = 1 + 2.0**-48
_WORTHWHILE = 40.0  # nats: a better cover of a head that holds e^40 tokens decides nothing
_STEPS = 12


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Certified upper bounds on the singular values, the logit scale included.

    Attributes:
        values: every κ_i, descending, of the cover that gives the smallest capacity.
        largest: the smallest κ_1 of any cover tried; in that cover no κ_i exceeds it.
        steep: whether T13″ applies (no rotation, no query bias and none of positions).
    """

    values: NDArray[np.float64]
    largest: float
    steep: bool

    def times(self, factor: float) -> Spectrum:
        """The same for logits multiplied by a factor of at least 1."""
        return Spectrum(self.values * (factor * _UP), self.largest * factor * _UP, self.steep)

    @property
    def rank(self) -> int:
        """How many singular values are not proved to be 0."""
        return int(np.count_nonzero(self.values))

    @cached_property
    def log_capacity(self) -> Enclosure:
        """Log N, in nats. **Upper** (T13; T13′ where it is proved and smaller)."""
        found = rigor_capacity.log_capacity(self.values)
        if not self.rank:
            return found
        flat = rigor_capacity.flat_log_capacity(self.rank, self.largest)
        return min(found, flat, key=lambda e: e.upper)

    @cached_property
    def log_capacity_estimate(self) -> Estimate | None:
        """The conjectured log N of a flat spectrum at κ_1 (T13′); None where no smaller."""
        if not self.rank:
            return None
        estimate = rigor_capacity.flat_log_capacity_estimate(self.rank, self.largest)
        return estimate if estimate.value < self.log_capacity.lower else None

    def any_token_ceiling(self, keys: int) -> float:
        """The most that every one of `keys` common keys can get. **Upper** (T12 to T13″).

        Args:
            keys: keys common to all queries, without the query token's own.
        """
        if keys <= 1:
            return 1.0
        found = [
            rigor_capacity.simplex_ceiling(keys, self.largest).upper,
            rigor_capacity.share(self.log_capacity, keys).upper,
        ]
        if self.steep:
            second = float(self.values[1]) if len(self.values) > 1 else 0.0
            found.append(rigor_capacity.steep_ceiling(keys, second).upper)
        return min(found)


def spectrum(head: Head, scales: NDArray[np.float64] | None = None) -> Spectrum:
    """Certified singular values of a head with norm caps on both sides; soft cap and sink aside.

    Args:
        head: the head.
        scales: the D-scaling of its spread bound, to save finding one.
    """
    assert head.query is not None
    assert head.key is not None
    if head.rotary is None or len(head.rotary.frequencies) == 0:
        values = _joint_values(head.query, head.key) * (head.scale.upper * _UP)
        biased = head.query.offset is not None or head.query.offset_error is not None
        return Spectrum(values, float(values[0]), steep=not biased and head.bias is None)
    tried = _tried(head, head.query, head.key, scales)
    _, best = min(tried, key=_log)
    return Spectrum(best, min(float(values[0]) for _, values in tried), steep=False)


def _joint_values(query: BallImage, key: BallImage) -> NDArray[np.float64]:
    """Upper bounds on every singular value of ρ_q ρ_k AᵀC."""
    steps = equilibration(query.gram, key.gram)
    nothing = np.zeros(key.head_dim, dtype=np.bool_)
    keys = rescale(cover(key, keep=nothing), steps)
    queries = rescale(cover(query, keep=nothing), 1 / steps)
    root, excess = factor(keys)
    values = singular_values_upper(queries, root.T) * (math.sqrt(excess) * _UP)
    return values + keys.slack * queries.norm_upper() * _UP if keys.slack else values


def _covered(head: Head, query: BallImage, keys: Cover) -> NDArray[np.float64]:
    nothing = np.zeros(query.head_dim, dtype=np.bool_)
    queries = cover(query, keep=nothing)
    values = singular_values_upper(queries, keys.factor.T)
    if keys.slack:
        # A ball of radius slack beside the cover: one ellipsoid holds their sum, at any ratio.
        extra = keys.slack * queries.norm_upper() * _UP
        ratio = max(extra / float(values[0]), 2.0**-60) if values[0] > 0 else 1.0
        values = np.sqrt(values**2 * (1 + ratio) + extra**2 * (1 + 1 / ratio)) * (1 + 2.0**-48)
    return values * (head.scale.upper * _UP)


def singular_values_upper(
    ellipsoid: Ellipsoid, transform: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Upper bounds, descending, on the singular values of transform @ F for the ellipsoid's F.

    Weyl: with G = V Λ Vᵀ + R in exact arithmetic, λ_i(G) ≤ λ_i·(1 + ‖VᵀV − I‖) + ‖R‖.
    """
    size = len(transform)
    unit = unit_of(np.abs(transform) @ ellipsoid.sizes)
    transform = transform / unit
    gram = transform @ ellipsoid.gram @ transform.T
    gram = np.tril(gram) + np.tril(gram, -1).T
    modulus = np.abs(transform) @ ellipsoid.sizes
    error = (ellipsoid.coefficient + gamma(2 * len(ellipsoid.sizes) + 8)) * float(modulus @ modulus)
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, 0.0)
    top = float(values[-1])
    rest = float(np.linalg.norm(gram - (vectors * values) @ vectors.T))
    error += rest + gamma(size + 8) * size * top * 2
    defect = float(np.linalg.norm(vectors.T @ vectors - np.eye(size))) + gamma(size + 8) * size * 2
    bounds = np.sqrt(values[::-1] * (1 + defect) + error * _UP) * _UP
    if ellipsoid.row_error is not None:
        bounds = bounds + norm_upper(np.abs(transform) @ ellipsoid.row_error) * _UP
    return np.where(bounds > 0, np.nextafter(bounds * unit, np.inf), 0.0)


def _log(tried: tuple[float, NDArray[np.float64]]) -> float:
    return tried[0]


def _tried(
    head: Head, query: BallImage, key: BallImage, scales: NDArray[np.float64] | None
) -> list[tuple[float, NDArray[np.float64]]]:
    """Log capacity and singular values by the covers of the keys that are worth trying."""

    def by(cover: Cover) -> tuple[float, NDArray[np.float64]]:
        values = _covered(head, query, cover)
        return float(log_capacity(values)), values

    assert head.rotary is not None
    groups, mask, offset = groups_of(head), rotated_mask(head), rotated_offset(head)
    gram_q, gram_k = query.gram * query.radius.upper**2, key.gram * key.radius.upper**2
    if len(head.rotary.unrotated):
        return [by(partial_cover(query, key, offset, groups, head.rotary.unrotated, mask)[1])]
    if key.is_diagonal and offset is None and key.row_error is None:
        # No cover is smaller than the one by the largest gain of each pair.
        gains = np.zeros(int(groups.max()) + 1)
        np.maximum.at(gains, groups, np.abs(np.diag(key.matrix)))
        tight = 1 / np.maximum(gains, 1e-12 * (float(gains.max()) or 1.0))
        return [by(diagonal_cover(key, tight[groups], 1.0, mask))]
    if scales is None:
        scales = scaling.minimise(gram_q, gram_k, None, offset, groups).scales
    weight = 1.0
    lifted = gram_k
    if offset is not None:
        weight = best_weight(scales[:, None] * gram_k * scales, scales * offset)
        lifted = gram_k / weight + np.outer(offset, offset) / (1 - weight)
    plain = _block_scales(lifted, groups)
    tried = [by(diagonal_cover(key, s, weight, mask)) for s in (scales, plain)]
    if min(map(_log, tried)) < _WORTHWHILE:
        start = scales if tried[0][0] <= tried[1][0] else plain
        made = _improve(gram_q * head.scale.upper**2, lifted, start, groups)
        tried.append(by(diagonal_cover(key, made, weight, mask)))
    return tried


def _block_scales(gram: NDArray[np.float64], groups: NDArray[np.intp]) -> NDArray[np.float64]:
    """Scales that give every rotated pair of the keys the same energy."""
    energy = np.bincount(groups, weights=np.diag(gram))
    floor = 1e-12 * (float(energy.max()) or 1.0)
    return np.asarray((1 / np.sqrt(np.maximum(energy, floor)))[groups])


def _improve(
    query: NDArray[np.float64],
    key: NDArray[np.float64],
    start: NDArray[np.float64],
    groups: NDArray[np.intp],
) -> NDArray[np.float64]:
    """Scales whose cover λ_max(S F_k S)·S⁻² gives nearly the smallest capacity (floats only)."""
    from scipy.optimize import minimize

    count = int(groups.max()) + 1
    first = np.zeros(count)
    first[groups] = np.log(start)
    side = scaling.Side(key, None, np.float64 if len(groups) <= 48 else np.float32)
    size = float(np.trace(key)) or 1.0

    def objective(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scales = np.exp(x)[groups]
        half, shares, _ = side.smooth_norm(scales, 1.0, 7)
        squares, vectors = np.linalg.eigh(query / np.outer(scales, scales))
        kappa = np.sqrt(np.maximum(squares * size, 1e-300)) * math.exp(half)
        level = float(water_level(kappa))
        # ∂ log N / ∂ log κ_i at the water level.
        pull = np.where(kappa > level, (kappa - level) / (2 * kappa - level), 0.0)
        gradient = pull.sum() * shares - (vectors * vectors) @ pull
        slope = np.bincount(groups, weights=gradient, minlength=count)
        return float(log_capacity(kappa)), np.asarray(slope, dtype=np.float64)

    found = minimize(
        objective, first, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "maxcor": 20}
    )
    return np.asarray(np.exp(found.x)[groups])
