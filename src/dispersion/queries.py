"""Query tokens for a witness: the query they give and their own key's logit, enclosed.

Without QK norm, query and own key are images of one input u. With QK norm they are normalised
separately, so an explicit hidden state is solved for and pushed through both projections.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dispersion.balls import product
from dispersion.cholesky import UNIT_ROUNDOFF, gamma, is_positive_semidefinite, norm_upper
from dispersion.points import GramData, Point, query_along, shared_key, with_offset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.head import BallImage, Head
    from dispersion.reach import QKNorm, Reach

_UP = 1 + 2.0**-48
_SOLVED_ENTRIES = 2**22  # projections up to this size are solved with every row in view
_SOLVED_ROWS = 1024  # and of larger ones up to this many rows of one head (large latents have more)
_RANKED_ROWS = 2048  # more rows than this are not certified to have full rank
_NO_NORM = 2.0**20  # a hidden state may have any size where no norm precedes attention


@dataclass(frozen=True, eq=False)
class QueryPoint:
    """A query with its own key.

    Attributes:
        query: the query in head space.
        own_key: the query token's own key, or None where the head does not attend to itself.
        hidden: the hidden state to feed the attention layer for the query token, shape (width,).

    """

    query: Point
    own_key: Point | None
    hidden: NDArray[np.float64]


def query_point(
    head: Head, direction: NDArray[np.float64], queries: GramData, keys: GramData
) -> QueryPoint | None:
    """The query token for direction y in head space, or None where rounding hides its value."""
    assert head.query is not None
    assert head.reach is not None
    if head.reach.query_norm is not None:
        return _through_norms(head, head.reach, direction)
    apart = head.reach.keys is not None
    if head.self_attention and head.reach.key_norm is not None:
        return None  # the own key would pass through a norm that the query does not
    query = query_along(head.query, queries, direction)
    if query is None:
        return None
    own = None
    u = head.query.matrix.T @ direction
    if head.self_attention:
        own = _lowest_key(head, query) if apart else shared_key(head, direction, u, queries, keys)
    return QueryPoint(query, own, hidden_state(head.reach, u / np.linalg.norm(u)))


def _lowest_key(head: Head, query: Point) -> Point:
    """The key with the smallest logit for a query at its own position, made of other states."""
    assert head.key is not None
    assert head.reach is not None
    share = key_share(head.reach.of_keys)
    shrunk = replace(head.key, radius=product(head.key.radius, share))
    key = query_along(shrunk, GramData.of(head.key), -query.value)
    return Point(np.zeros(head.key.head_dim), head.key.norm_upper) if key is None else key


def hidden_state(reach: Reach, u: NDArray[np.float64]) -> NDArray[np.float64]:
    """The hidden state of ball coordinate u: T (radius · gain ⊙ u) + bias."""
    radius = reach.radius if math.isfinite(reach.radius) else _NO_NORM
    state = radius * u
    if reach.gain is not None:
        state = state * reach.gain
    if reach.through is not None:
        state = reach.through @ state
    return np.asarray(state if reach.bias is None else state + reach.bias)


def key_share(reach: Reach) -> float:
    """A φ such that every direction of the key ball is reached at norm φ; 0 where unknown.

    1 without QK norm. With it, the projection must have full row rank, proved by Cholesky, and ε
    takes a little of the norm: φ² = m/(m + ε) at the mean square m that the input's norm allows.
    """
    norm = reach.key_norm
    if norm is None:
        return 1.0
    room = _room(reach, norm)
    if room <= 0 or norm.eps == 0:
        return float(room > 0)
    if not math.isfinite(room):
        return 1 - 2.0**-30
    mean_square = room * room / len(norm.weight)
    return math.sqrt(mean_square / (mean_square + norm.eps)) * (1 - 2.0**-50)


def _room(reach: Reach, norm: QKNorm) -> float:
    """Every projected vector of at most this 2-norm is reached (lower bound; 0 where unknown)."""
    weight = _effective(reach, norm)
    rows, width = weight.shape
    if rows > min(_RANKED_ROWS, width):
        return 0.0
    gram = weight @ weight.T
    floor = float(np.linalg.eigvalsh(gram)[0]) * (1 - 2.0**-20)
    # The float rows are off by the gain's product and the mean, in proportion to rows before it.
    before = weight if not reach.centred else _effective(replace(reach, centred=False), norm)
    sizes = float(np.einsum("ij,ij->", before, before)) * (1 + gamma(rows * width + 8))
    error = (gamma(width + 16) + 3 * gamma(width + 8)) * sizes
    shift = np.diag(np.full(rows, floor))
    if floor <= 0 or not is_positive_semidefinite(gram - shift, error + 4 * UNIT_ROUNDOFF * sizes):
        return 0.0
    if not math.isfinite(reach.radius):
        return math.inf
    constant = _constant(reach, norm)
    return reach.radius * math.sqrt(floor) * (1 - 2.0**-30) - norm_upper(constant) * (1 + 2.0**-30)


def _effective(reach: Reach, norm: QKNorm) -> NDArray[np.float64]:
    """The projection seen from the ball of inputs, without the radius: W diag(gain) P."""
    weight = np.asarray(norm.weight, dtype=np.float64)
    if reach.gain is not None:
        weight = weight * np.asarray(reach.gain, dtype=np.float64)
    if reach.centred:
        weight = weight - weight.mean(axis=1, keepdims=True)
    return np.asarray(weight)


def _constant(reach: Reach, norm: QKNorm) -> NDArray[np.float64]:
    """What the projection gives for the ball's centre: W β + b."""
    constant = np.zeros(len(norm.weight))
    if reach.bias is not None:
        constant += np.asarray(norm.weight, dtype=np.float64) @ np.asarray(reach.bias, np.float64)
    return constant if norm.bias is None else constant + np.asarray(norm.bias, dtype=np.float64)


def _through_norms(head: Head, reach: Reach, direction: NDArray[np.float64]) -> QueryPoint | None:
    assert head.query is not None
    assert head.key is not None
    assert reach.query_norm is not None
    wanted = head.query.matrix.T @ direction
    size = float(np.linalg.norm(wanted))
    if not size > 0:
        return None
    u = _solve(reach, reach.query_norm, reach.key_norm, wanted / size)
    if u is None:
        return None
    state = hidden_state(reach, u)
    query = _normalised(head.query, reach, reach.query_norm, state)
    if query is None:
        return None
    own = None
    if head.self_attention and reach.keys is not None:
        own = _lowest_key(head, query)
    elif head.self_attention:
        if reach.key_norm is None:
            return None
        own = _normalised(head.key, reach, reach.key_norm, state)
        if own is None:
            own = Point(np.zeros(head.key.head_dim), head.key.norm_upper)
    return QueryPoint(query, own, state)


def _solve(
    reach: Reach,
    queries: QKNorm,
    keys: QKNorm | None,
    wanted: NDArray[np.float64],
) -> NDArray[np.float64] | None:
    """A ball coordinate of norm just under 1 whose projection points along `wanted`.

    None where the projection is zero. Where the width allows, other heads' queries and all keys
    are asked to vanish.
    """
    parts, goals, constants = [], [], []
    goal = np.zeros(len(queries.weight))
    if len(wanted) == len(goal):
        goal[:] = wanted
    else:
        goal[queries.start : queries.start + len(wanted)] = wanted
    width = queries.weight.shape[1]
    whole = queries.weight.shape[0] * width <= _SOLVED_ENTRIES
    own = slice(None) if whole else slice(queries.start, queries.start + len(wanted))
    parts.append(_effective(reach, replace(queries, weight=queries.weight[own])))
    goals.append(goal[own])
    constants.append(_constant(reach, queries)[own])
    if keys is not None and whole and len(goal) + len(keys.weight) <= width:
        parts.append(_effective(reach, keys))
        goals.append(np.zeros(len(keys.weight)))
        constants.append(_constant(reach, keys))
    stacked, target = np.concatenate(parts), np.concatenate(goals)
    radius = reach.radius if math.isfinite(reach.radius) else _NO_NORM
    pull = np.column_stack([target, np.concatenate(constants) / radius])
    if whole or len(stacked) <= _SOLVED_ROWS:
        gram = stacked @ stacked.T
        ridge = 1e-14 * float(np.trace(gram)) / len(gram) + 1e-300
        pull = np.asarray(np.linalg.solve(gram + ridge * np.eye(len(gram)), pull))
    # Without solving, rows of many more columns than rows are nearly orthogonal.
    both = stacked.T @ pull
    if reach.centred:
        both = both - both.mean(axis=0)
    along, bias = both.T
    size = float(np.linalg.norm(along))
    if not size > 0:
        return None
    # The largest t with ‖t·along − bias‖ = 1: the biases are undone where that fits in the ball.
    along = along / size
    middle = float(along @ bias)
    room = middle * middle + 1 - float(bias @ bias)
    u = (middle + math.sqrt(room)) * along - bias if room > 0 else along
    return np.asarray(u * ((1 - 2.0**-30) / np.linalg.norm(u)))


def _normalised(
    ball: BallImage, reach: Reach, norm: QKNorm, state: NDArray[np.float64]
) -> Point | None:
    """The head-space vector of a hidden state, after projection and QK norm.

    The exact state is radius · gain ⊙ u + bias for the exact u ⟂ 1 nearest to the float one; the
    error covers its distance from the float state.
    """
    rows, width = norm.weight.shape
    projected, error = np.empty(rows), np.empty(rows)
    size = norm_upper(state)
    size += reach.radius if math.isfinite(reach.radius) and reach.gain is None else 0.0
    if reach.gain is not None:
        radius = reach.radius if math.isfinite(reach.radius) else _NO_NORM
        size += radius * float(np.max(np.abs(np.asarray(reach.gain, np.float64))))
    if reach.bias is not None:
        size += norm_upper(np.asarray(reach.bias, np.float64))
    block = max(1, 2**20 // width)
    for first in range(0, rows, block):
        weight = np.asarray(norm.weight[first : first + block], dtype=np.float64)
        projected[first : first + block] = weight @ state
        error[first : first + block] = np.sqrt(np.einsum("ij,ij->i", weight, weight)) * size
    error *= gamma(2 * width + 32)
    if norm.bias is not None:
        bias = np.asarray(norm.bias, dtype=np.float64)
        projected += bias
        error += 2 * UNIT_ROUNDOFF * (np.abs(projected) + np.abs(bias))
    if norm.centred:
        mean = projected.mean()
        error = error + error.mean() + gamma(rows + 4) * float(np.abs(projected).mean())
        projected = projected - mean
    drift = norm_upper(error)
    length = float(np.linalg.norm(projected))
    slack = gamma(rows + 32)
    floor = math.sqrt(max(length - drift, 0.0) ** 2 + rows * norm.eps) * (1 - slack)
    ceiling = math.sqrt((length + drift) ** 2 + rows * norm.eps) * (1 + slack)
    if floor == 0.0:
        return None
    inner = ball.matrix.shape[1]
    own = slice(norm.start, norm.start + inner) if inner != rows else slice(None)
    middle = math.sqrt(length * length + rows * norm.eps)
    u = projected[own] / middle
    u_error = (drift + length * (ceiling - floor) / floor) / floor * _UP
    radius = (ball.radius.lower + ball.radius.upper) / 2
    value = radius * (ball.matrix @ u)
    largest = norm_upper(ball.row_sizes)
    total = radius * largest * (u_error + gamma(inner + 16))
    total += (ball.radius.upper - ball.radius.lower) * largest
    if ball.row_error is not None:
        total += ball.radius.upper * norm_upper(ball.row_error)
    return with_offset(ball, Point(value, total * _UP))


def key_states(head: Head, directions: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Hidden states (n, width) whose keys are extreme along `directions`, (n, head_dim)."""
    assert head.key is not None
    assert head.reach is not None
    reach = head.reach.of_keys
    wanted = directions @ head.key.matrix
    wanted = wanted / np.maximum(np.linalg.norm(wanted, axis=1, keepdims=True), 1e-300)
    norm = reach.key_norm
    if norm is None:
        return np.stack([hidden_state(reach, row) for row in wanted])
    goals = np.zeros((len(wanted), len(norm.weight)))
    start = norm.start if wanted.shape[1] != goals.shape[1] else 0
    goals[:, start : start + wanted.shape[1]] = wanted
    weight = _effective(reach, norm)
    solver = np.linalg.solve(weight @ weight.T, weight).T
    radius = reach.radius if math.isfinite(reach.radius) else _NO_NORM
    # Every key has the same mean square before its norm: the one behind `share`.
    level = min(_room(reach, norm), radius)
    if norm.eps:
        level = math.sqrt(len(norm.weight) * norm.eps / (1 / share**2 - 1))
    rows = goals * level - _constant(reach, norm)
    return np.stack([hidden_state(reach, solver @ row / radius) for row in rows])
