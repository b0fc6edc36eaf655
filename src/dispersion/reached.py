"""The largest logit of a rotated head that ascent finds, over free phases. Floats only.

Over all rotation angles ⟨R q, R′ k⟩ reaches Σ_i ‖q_i‖·‖k_i‖, the sum over rotated pairs. Its
maximisers are found by alternation: given the pair norms of one side, the best point of the other
ellipsoid {x : x = G u, uᵀG u ≤ 1} moves to u = w ∘ x, w_i = ‖k_i‖/‖q_i‖. Some momentum on u saves
half the steps. Nothing here is part of a proof: it says when a bound is good enough (refine.py).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dispersion.ellipsoid import reordered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dispersion.ellipsoid import Ellipsoid

_STARTS, _SMOOTHINGS = 32, 8
_STEPS, _KEPT, _LATER_STEPS = 6, 6, 48
_PATIENCE, _WORTHWHILE = 4, 1 + 2e-5  # ascent that gains less in so many steps is over
_MOMENTUM = np.float32(0.8)
_TINY = np.float32(1e-30)


def largest_logit(
    sides: tuple[Ellipsoid, Ellipsoid],
    scales: NDArray[np.float64],
    order: NDArray[np.intp],
    enough: float = math.inf,
) -> float:
    """About the largest Σ_i ‖q_i‖·‖k_i‖ over two ellipsoids; 0 where a side is out of range.

    Args:
        sides: the query and the key ellipsoid.
        scales: a D-scaling, near which the search is well conditioned, shape (head_dim,).
        order: coordinates, the first ones of all pairs, then the second ones, shape (head_dim,).
        enough: a value above which the search may stop.

    """
    grams, unit = [], 1.0
    for ellipsoid, s in zip(sides, (1 / scales, scales), strict=True):
        scaled = reordered(s[:, None] * ellipsoid.gram * s, order)
        size = float(np.trace(scaled))
        if not 2.0**-500 < size < 2.0**500:
            return 0.0
        unit *= math.sqrt(size)
        grams.append((scaled / size).astype(np.float32))
    rng = np.random.default_rng(0)
    points = []
    for gram in grams:
        point = rng.standard_normal((len(gram), _STARTS), dtype=np.float32).T
        # Random starts, smoothed towards the long axes.
        for _ in range(_SMOOTHINGS):
            point = point @ gram
            point /= max(np.abs(point).max(), _TINY)
        points.append(point)
    enough /= unit
    points, values = _climbed(grams, points, _STEPS, enough)
    if float(values.max()) <= enough:
        best = np.argsort(-values)[:_KEPT]
        _, values = _climbed(grams, [p[best] for p in points], _LATER_STEPS, enough)
    return float(values.max()) * unit


def _climbed(
    grams: Sequence[NDArray[np.float32]],
    points: Sequence[NDArray[np.float32]],
    steps: int,
    enough: float,
) -> tuple[list[NDArray[np.float32]], NDArray[np.float32]]:
    """The u of both sides after ascent, shape (starts, head_dim), and the values reached."""
    starts = [_normalised(g, u) for g, u in zip(grams, points, strict=True)]
    u, x = ([pair[i] for pair in starts] for i in (0, 1))
    sizes = [_sizes(image) for image in x]
    half = len(grams[0]) // 2
    value = np.vecdot(*sizes)
    momentum, reached = np.float32(0), [0.0]
    for _ in range(steps):
        for mine, other in ((0, 1), (1, 0)):
            weight = sizes[other] / np.maximum(sizes[mine], _TINY)
            weight *= ((1 + momentum) / np.maximum(value, _TINY))[:, None]
            step = x[mine].copy()
            step.reshape(-1, 2, half)[:] *= weight[:, None]
            step -= momentum * u[mine]
            u[mine], x[mine] = _normalised(grams[mine], step)
            sizes[mine] = _sizes(x[mine])
            value = np.vecdot(*sizes)
        momentum = _MOMENTUM
        reached.append(float(value.max()))
        settled = len(reached) > _PATIENCE
        if settled and reached[-1] <= _WORTHWHILE * reached[-1 - _PATIENCE]:
            break
        if reached[-1] > enough:
            break
    return u, value


def _normalised(
    gram: NDArray[np.float32], u: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """U on the boundary, uᵀG u = 1, and its point G u, for each row."""
    x = u @ gram
    unit = 1 / np.sqrt(np.maximum(np.vecdot(u, x), _TINY))[:, None]
    u = u * unit
    x *= unit
    return u, x


def _sizes(image: NDArray[np.float32]) -> NDArray[np.float32]:
    half = image.shape[1] // 2
    squares = image**2
    return np.asarray(np.sqrt(squares[:, :half] + squares[:, half:]))
