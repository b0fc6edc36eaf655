"""Concrete queries and the logits of keys against them, evaluated with rigorous error bounds.

Everything is float64 with explicit error terms: a `Point` is a float vector and a bound on its
distance to the exact one. Quadratic forms of the Gram matrices replace products with the full
projections, so that a lag costs head_dim² and not head_dim · width operations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dispersion.cholesky import UNIT_ROUNDOFF, gamma, norm_upper

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.head import BallImage, Head

_UP = 1 + 2.0**-48


@dataclass(frozen=True, eq=False)
class Point:
    """A vector in head space and how far the exact one may be from it (2-norm)."""

    value: NDArray[np.float64]
    error: float

    @property
    def norm(self) -> float:
        """Upper bound on the exact vector's 2-norm."""
        return (norm_upper(self.value) + self.error) * _UP


@dataclass(frozen=True, eq=False)
class Logits:
    """Float values and error bounds, one per key, before soft cap, logit scale applied."""

    value: NDArray[np.float64]
    error: NDArray[np.float64]

    @property
    def lower(self) -> NDArray[np.float64]:
        return np.nextafter(self.value - self.error, -np.inf)

    @property
    def upper(self) -> NDArray[np.float64]:
        return np.nextafter(self.value + self.error, np.inf)


@dataclass(frozen=True, eq=False)
class GramData:
    """The Gram matrix of a ball image with what is needed to bound errors of its products."""

    gram: NDArray[np.float64]
    sizes: NDArray[np.float64]
    coefficient: float
    row_error: NDArray[np.float64]

    @classmethod
    def of(cls, ball: BallImage) -> GramData:
        coefficient = ball.coefficient
        error = np.zeros(ball.head_dim) if ball.row_error is None else ball.row_error
        return cls(ball.gram, ball.row_sizes, coefficient * (1 + 2 * coefficient), error)

    @property
    def largest(self) -> float:
        """Upper bound on the exact matrix's Frobenius norm."""
        return norm_upper(self.sizes + self.row_error) * _UP

    def half_norm(self, z: NDArray[np.float64], error: float) -> Logits:
        """‖Mᵀ z‖ for every row z of an (n, head_dim) array known to within `error`."""
        modulus = np.abs(z)
        s = modulus @ self.sizes
        t = modulus @ self.row_error
        square = np.einsum("ni,ni->n", z @ self.gram, z)
        spread = (self.coefficient + gamma(2 * len(self.sizes) + 8)) * s * s
        value = np.sqrt(np.maximum(square, 0.0))
        # |√a − √b| ≤ min(|a − b| / √b, √|a − b|), and ‖(M + E)ᵀz‖ is within ‖Eᵀz‖ ≤ t of ‖Mᵀz‖.
        root = np.minimum(spread / np.maximum(value, 1e-300), np.sqrt(spread)) + t
        # So near zero the squares underflow: only ‖Mᵀz‖ ≤ s + t is known.
        root = np.where(s + t < 2.0**-400, s + t, root)
        return Logits(value, (root + 4 * UNIT_ROUNDOFF * value + self.largest * error) * _UP)


def query_along(ball: BallImage, data: GramData, direction: NDArray[np.float64]) -> Point | None:
    """The query of input u = Aᵀy/‖Aᵀy‖, y the direction: ρ·A Aᵀy/‖Aᵀy‖ + a, enclosed."""
    y = np.abs(direction)
    s, t = float(data.sizes @ y), float(data.row_error @ y)
    g = data.gram @ direction
    square = float(direction @ g)
    d = len(direction)
    slack = ((data.coefficient + gamma(2 * d + 8)) * s * s + 2 * s * t + t * t) * _UP
    if not square > 4 * slack:
        return None
    norm = math.sqrt(square)
    norm_error = slack / norm + 4 * UNIT_ROUNDOFF * norm
    off = (data.coefficient + gamma(d + 4)) * data.sizes * s
    off = off + data.row_error * s + data.sizes * t + data.row_error * t
    radius = (ball.radius.lower + ball.radius.upper) / 2
    radius_error = ball.radius.upper - ball.radius.lower
    image = g / norm
    size = float(np.linalg.norm(image))
    low = norm - norm_error
    error = radius * (float(np.linalg.norm(off)) / low + size * norm_error / low)
    error += (radius_error + 8 * UNIT_ROUNDOFF * radius) * size
    return with_offset(ball, Point(radius * image, error * _UP))


def with_offset(ball: BallImage, point: Point) -> Point:
    """A point of the ball's linear part with the ball's offset added."""
    if ball.offset is None:
        return point
    error = point.error + 2 * UNIT_ROUNDOFF * (point.norm + norm_upper(ball.offset))
    if ball.offset_error is not None:
        error += norm_upper(ball.offset_error)
    return Point(point.value + ball.offset, error * _UP)


def shared_key(
    head: Head,
    direction: NDArray[np.float64],
    along: NDArray[np.float64],
    queries: GramData,
    keys: GramData,
) -> Point:
    """The query token's own key: ρ_k C u + c with the same u = Aᵀy/‖Aᵀy‖, enclosed.

    Args:
        head: the head.
        direction: y, shape (head_dim,).
        along: Aᵀy as computed, shape (r,).
        queries, keys: of the head's two balls.

    """
    assert head.query is not None
    assert head.key is not None
    norm = float(np.linalg.norm(along))
    y = np.abs(direction)
    s, t = float(queries.sizes @ y), float(queries.row_error @ y)
    width = head.query.matrix.shape[1]
    image = head.key.matrix @ along / norm
    # The exact u differs from the float one by this much, relative to norm 1.
    drift = 2 * (gamma(width + len(y) + 8) * s + t) / norm * _UP
    radius = head.key.radius.upper
    size = float(np.linalg.norm(image))
    error = (
        radius
        * (
            (gamma(width + 8) + drift) * float(np.linalg.norm(keys.sizes))
            + (1 + drift) * float(np.linalg.norm(keys.row_error))
            + 8 * UNIT_ROUNDOFF * size
        )
        + (head.key.radius.upper - head.key.radius.lower) * size
    )
    return with_offset(head.key, Point(radius * image, error * _UP))


def turned(
    head: Head, query: Point, lags: NDArray[np.int64], length: int
) -> tuple[NDArray[np.float64], float]:
    """The query in the frame of keys `lag` tokens earlier, (lags, head_dim), and its error."""
    if head.rotary is None or len(head.rotary.frequencies) == 0:
        return np.broadcast_to(query.value, (len(lags), len(query.value))), query.error
    # ⟨q, R(−lag) k⟩ = ⟨R(lag) q, k⟩
    z = head.rotary.rotate(query.value, lags, length=length)
    fastest = float(np.max(np.abs(head.rotary.frequencies_at(length))))
    largest = float(np.max(np.abs(lags), initial=0))
    angle_error = 8 * UNIT_ROUNDOFF * (largest * fastest + 1)
    return z, (query.error + angle_error * query.norm) * _UP


def dot(z: NDArray[np.float64], z_error: float, key: Point) -> Logits:
    """⟨z, k⟩ for every row z, enclosed."""
    value = z @ key.value
    lengths = np.sqrt(np.einsum("ni,ni->n", z, z)) * (1 + gamma(len(key.value) + 8))
    size = norm_upper(key.value)
    error = lengths * (gamma(len(key.value) + 4) * size + key.error) + z_error * (size + key.error)
    return Logits(value, error * _UP)


def scaled(logits: Logits, low: float, high: float) -> Logits:
    """Logits times a positive factor known to lie in [low, high]."""
    middle = (low + high) / 2
    value = logits.value * middle
    error = logits.error * high + np.abs(logits.value) * (high - low) + np.abs(value) * 2.0**-51
    return Logits(value, error * _UP)
