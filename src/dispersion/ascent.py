"""Gradient ascent on the smallest coefficient of a context: n queries against n keys. Floats only.

Points move on unit spheres; a ball is the sphere of one dimension more, seen from above. The
smallest log coefficient is smoothed, with a sharpness that grows, and climbed by L-BFGS. Nothing
here is rigorous: what comes out is evaluated elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

Array: TypeAlias = NDArray[np.float64]
Pull: TypeAlias = Callable[[Array], tuple[Array, Array]]
Model: TypeAlias = Callable[[Array, Array], tuple[Array, Pull]]
"""Queries (n, r) and keys (n, r′) to logits (n, n + m), query i's own target in column i, and a
function that turns a gradient in the logits into one in queries and keys."""

_minimise: Any = optimize.minimize  # its stubs, where installed, are too narrow
_LIFT = 0.05  # on the sphere's equator the height has no gradient, so starts lie a little above
_MEMORY = 16


def least_log(logits: Array) -> float:
    """The smallest log coefficient of a context's targets."""
    return float(np.min(_log_coefficients(logits)[0]))


def climb(
    model: Model,
    queries: Array,
    keys: Array,
    *,
    steps: int,
    sharpness: Sequence[float],
    solid: bool = True,
) -> tuple[Array, Array]:
    """Queries and keys whose smallest coefficient is locally largest.

    Args:
        model: the logits and how gradients go back through them.
        queries, keys: where to start, shapes (n, r) and (n, r′), of norm at most 1.
        steps: iterations, shared out evenly over `sharpness`.
        sharpness: factors of the log coefficients in the soft minimum, ascending.
        solid: whether points may leave the sphere for the inside of the ball.
    """
    best = queries, keys
    reached = least_log(model(*best)[0])
    shapes = [np.shape(_lifted(x, solid)) for x in (queries, keys)]
    split = shapes[0][0] * shapes[0][1]
    state = np.concatenate([_lifted(x, solid).ravel() for x in (queries, keys)])

    def parts(flat: Array) -> list[Array]:
        return [flat[:split].reshape(shapes[0]), flat[split:].reshape(shapes[1])]

    def seen(flat: Array) -> tuple[Array, Array]:
        x, y = (_unit(p) for p in parts(flat))
        return (x[:, :-1], y[:, :-1]) if solid else (x, y)

    def downhill(flat: Array, factor: float) -> tuple[float, Array]:
        logits, pull = model(*seen(flat))
        value, slope = _soft_least(logits, factor)
        back = [
            _tangent(part, np.pad(g, ((0, 0), (0, 1))) if solid else g)
            for part, g in zip(parts(flat), pull(slope), strict=True)
        ]
        return -value, -np.concatenate([g.ravel() for g in back])

    options = {"maxiter": max(1, steps // len(sharpness)), "maxcor": _MEMORY}
    for factor in sharpness:
        state = np.concatenate([_unit(p).ravel() for p in parts(state)])
        state = _minimise(
            downhill, state, args=(factor,), jac=True, method="L-BFGS-B", options=options
        ).x
        found = least_log(model(*seen(state))[0])
        if found > reached:
            best, reached = seen(state), found
    return best


def _log_coefficients(logits: Array) -> tuple[Array, Array]:
    """Log coefficients of the targets, and all coefficients."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    weights = np.exp(shifted)
    total = weights.sum(axis=1)
    return np.diagonal(shifted) - np.log(total), weights / total[:, None]


def _soft_least(logits: Array, factor: float) -> tuple[float, Array]:
    """−log(mean e^(−factor·log α))/factor, at least the smallest log α, and its gradient."""
    logs, shares = _log_coefficients(logits)
    least = float(logs.min())
    weights = np.exp(-factor * (logs - least))
    total = float(weights.sum())
    weights /= total
    slope = -weights[:, None] * shares
    index = np.arange(len(logs))
    slope[index, index] += weights
    return least - float(np.log(total / len(logs))) / factor, slope


def _lifted(points: Array, solid: bool) -> Array:
    if not solid:
        return points
    height = np.sqrt(np.maximum(1 - np.sum(points**2, axis=1, keepdims=True), _LIFT**2))
    return np.concatenate([points, height], axis=1)


def _unit(points: Array) -> Array:
    sizes = np.linalg.norm(points, axis=1, keepdims=True)
    return np.asarray(points / np.maximum(sizes, 1e-300))


def _tangent(points: Array, slope: Array) -> Array:
    """The gradient before the points are scaled to norm 1."""
    sizes = np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-300)
    unit = points / sizes
    return np.asarray((slope - unit * np.sum(unit * slope, axis=1, keepdims=True)) / sizes)
