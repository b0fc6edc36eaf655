"""Where to look for a witness: directions of the query and lags of the keys. Floats only."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dispersion.ellipsoid import best_weight, reordered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.head import BallImage, Head

_STARTS = 4
_ITERATIONS = 7
_MOMENTUM = 0.65
_TINY, _LIGHT_TINY = 1e-300, np.float32(1e-30)


def candidate_lags(head: Head, length: int) -> NDArray[np.int64]:
    """Lags worth trying, ascending, at least 1: all small ones, then ever sparser."""
    seen = head.visible(length)
    if head.rotary is None or len(head.rotary.frequencies) == 0:
        return np.arange(1, min(seen, 3), dtype=np.int64)
    near = np.arange(1, min(seen, 9), dtype=np.int64)
    far = np.unique(np.round(1.6 ** np.arange(5, 60)).astype(np.int64))
    return np.concatenate([near, far[(far > 8) & (far < min(seen, 4096))]])


def best_direction(head: Head, lags: NDArray[np.int64], length: int) -> NDArray[np.float64]:
    """A direction y whose query, u ∝ Aᵀy, has nearly the largest spread at these lags."""
    assert head.query is not None
    assert head.key is not None
    if head.rotary is None or len(head.rotary.frequencies) == 0:
        return _joint_direction(head.query, head.key)
    return _rotated_direction(head, head.query, head.key, lags, length)


def _joint_direction(query: BallImage, key: BallImage) -> NDArray[np.float64]:
    """The maximiser of ‖Cᵀ(ρ A u + a)‖, from its secular equation, then one fixed-point step."""
    size = query.head_dim
    # Powers of two, so that only what leaves the range changes.
    units = [2.0 ** math.frexp(float(ball.row_sizes.max()))[1] for ball in (query, key)]
    gram = query.gram / units[0] / units[0] * query.radius.upper**2
    key_gram = key.gram / units[1] / units[1]
    ridge = 1e-13 * (float(np.trace(gram)) / size + _TINY)
    root = np.linalg.cholesky(gram + ridge * np.eye(size))
    product = root.T @ key_gram @ root
    values, vectors = np.linalg.eigh((product + product.T) / 2)
    point = vectors[:, -1]
    if query.offset is not None and np.any(query.offset):
        offset = query.offset / units[0]
        # Stationary: (λ − MᵀM) z = Mᵀm; λ follows from the best share w = 1 − σ-part.
        push = root.T @ (key_gram @ offset)
        starts = [point, -point, push / (np.linalg.norm(push) + _TINY)]
        values_m = np.maximum(values, 0)
        weight = best_weight(np.diag(values_m), _along(vectors, values_m, push))
        # Beside a bias of next to nothing it rounds to 1.
        weight = min(max(weight, 2.0**-40), 1 - 2.0**-40)
        level = weight * _bound(values_m, _along(vectors, values_m, push), weight)
        solved = vectors @ ((vectors.T @ push) / (level - values_m + 1e-12 * level + _TINY))
        starts.append(solved / (np.linalg.norm(solved) + _TINY))
        best = -1.0
        for start in starts:
            z = start
            for _ in range(60):
                step = root.T @ (key_gram @ (root @ z + offset))
                z = step / (np.linalg.norm(step) + _TINY)
            reached = root @ z + offset
            value = float(reached @ key_gram @ reached)
            if value > best:
                best, point = value, z
        return np.asarray(key_gram @ (root @ point + offset))
    return np.asarray(key_gram @ (root @ point))


def _along(
    vectors: NDArray[np.float64], values: NDArray[np.float64], push: NDArray[np.float64]
) -> NDArray[np.float64]:
    """M in the eigenbasis of MᵀM, from Mᵀm: m_i = (Mᵀm)_i / σ_i."""
    floor = 1e-12 * (float(values.max()) + _TINY)
    return np.asarray((vectors.T @ push) / np.sqrt(np.maximum(values, floor)))


def _bound(values: NDArray[np.float64], offset: NDArray[np.float64], weight: float) -> float:
    matrix = np.diag(values / weight) + np.outer(offset, offset) / (1 - weight)
    return float(np.linalg.eigvalsh(matrix)[-1])


def _rotated_direction(
    head: Head, query: BallImage, key: BallImage, lags: NDArray[np.int64], length: int
) -> NDArray[np.float64]:
    rotary = head.rotary
    assert rotary is not None
    # Coordinates that turn together are one complex number, those that do not turn are halves of
    # numbers with phase 1; a zero makes their count even.
    order = np.concatenate([rotary.pairs.ravel(), rotary.unrotated])
    query_gram, offset, radius = _light(query, order)
    key_gram, bias, reach = _light(key, order)
    size = len(key_gram)
    # Half of the lags, evenly picked, steer the search; the witness then sees all of them.
    tried = lags[:: max(1, len(lags) // 16)]
    phases = np.ones((len(tried), size // 2), np.complex64)
    phases[:, : len(rotary.pairs)] = np.exp(1j * rotary.angles(tried, length=length))
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((_STARTS, query.head_dim))[:, order].astype(np.float32)
    directions = np.pad(directions, ((0, 0), (0, size - len(order)))) @ key_gram
    best = np.full(_STARTS, -np.inf, np.float32)
    kept = directions.copy()
    rows = np.arange(_STARTS)
    before, momentum = directions, 0.0
    for _ in range(_ITERATIONS):
        image = directions @ query_gram
        norms = np.sqrt(np.maximum(np.einsum("bi,bi->b", image, directions), _LIGHT_TINY))
        queries = image * (radius / norms)[:, None] + offset
        z = (queries.view(np.complex64)[:, None, :] * phases).view(np.float32)
        pulled = (z.reshape(-1, size) @ key_gram).reshape(z.shape)
        h = np.sqrt(np.maximum(np.einsum("bli,bli->bl", pulled, z), _LIGHT_TINY))
        constant = z @ bias
        top = reach * h + constant
        bottom = -reach * h + constant
        first = np.argmax(top, axis=1)
        masked = bottom.copy()
        if len(tried) > 1:
            masked[rows, first] = np.inf
        second = np.argmin(masked, axis=1)
        value = top[rows, first] - bottom[rows, second]
        better = value > best
        best = np.where(better, value, best)
        kept[better] = directions[better]
        gradient = np.zeros_like(directions)
        for pick, sign in ((first, 1.0), (second, -1.0)):
            slope = pulled[rows, pick] * (reach / h[rows, pick])[:, None] + sign * bias
            back = slope.view(np.complex64) * np.conj(phases[pick])
            gradient += back.view(np.float32)
        # Fixed-point steps with momentum, as for power iterations.
        squares = np.einsum("bi,bi->b", gradient, gradient)
        gradient /= np.sqrt(np.maximum(squares, _LIGHT_TINY))[:, None]
        directions = (1 + momentum) * gradient - momentum * before
        before, momentum = gradient, _MOMENTUM
    found = np.empty(query.head_dim)
    found[order] = kept[int(np.argmax(best)), : len(order)]
    return found


def _light(
    ball: BallImage, order: NDArray[np.intp]
) -> tuple[NDArray[np.float32], NDArray[np.float32], np.float32]:
    """A ball's Gram matrix, offset and radius in float32, of points about 1 long, in an order.

    The Gram matrix has trace 1. A zero coordinate makes the size even where it is odd.
    """
    size = ball.head_dim + ball.head_dim % 2
    trace = max(float(np.trace(ball.gram)), _TINY)
    gram, offset = np.zeros((size, size), np.float32), np.zeros(size)
    gram[: len(order), : len(order)] = reordered(ball.gram / trace, order)
    if ball.offset is not None:
        offset[: len(order)] = ball.offset[order]
    radius = ball.radius.upper * np.sqrt(trace)
    unit = max(float(np.hypot(radius, np.linalg.norm(offset))), _TINY)
    return gram, (offset / unit).astype(np.float32), np.float32(radius / unit)
