"""The ascent behind a head's contexts: logits of points on two spheres, and their gradients.

Floats only; `head_contexts` evaluates what is found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dispersion.ascent import climb, least_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from dispersion.ascent import Array, Model, Pull
    from dispersion.head import BallImage, Head

_SHARPNESS = (10.0, 100.0, 1000.0)
_SATURATED = -1e-6  # a context whose every log coefficient is above this needs no ascent
_NEGLIGIBLE = 1e-9  # shares of λ_max below which a direction of a ball is left alone


@dataclass(frozen=True, eq=False)
class Side:
    """One ball in the eigenbasis of its Gram matrix: points are x ↦ forth x + offset.

    Attributes:
        forth: shape (head_dim, rank), from the unit sphere to head space.
        back: shape (rank, head_dim), from the sphere to directions y with u ∝ Mᵀy.
        offset: shape (head_dim,).

    """

    forth: Array
    back: Array
    offset: Array

    @property
    def rank(self) -> int:
        return int(self.back.shape[0])

    @classmethod
    def of(cls, ball: BallImage) -> Side:
        values, vectors = np.linalg.eigh(ball.gram)
        used = values > _NEGLIGIBLE * max(float(values[-1]), 0.0)
        root = np.sqrt(values[used])
        offset = np.zeros(ball.head_dim) if ball.offset is None else ball.offset
        basis = vectors[:, used]
        return cls(ball.radius.upper * basis * root, (basis / root).T, offset)


def search(
    head: Head,
    n: int,
    sides: tuple[Side, Side],
    share: float,
    rng: np.random.Generator,
    steps: int,
) -> tuple[Array, Array]:
    """Queries and keys on the two unit spheres, shapes (n, rank), whose worst query does well."""
    model = _model(head, n, sides, share)

    def value(pair: tuple[Array, Array]) -> float:
        return least_log(model(*pair)[0])

    # Each query starts along the gradient of its target's logit before the cap, which may vanish.
    linear = _model(replace(head, soft_cap=None, sink=None), n, sides, share)
    starts = []
    for _ in range(2):
        keys = _normalised(rng.standard_normal((n, sides[1].rank)))
        other = rng.standard_normal((n, sides[0].rank))
        toward = linear(np.zeros_like(other), keys)[1](np.eye(n))[0]
        known = np.linalg.norm(toward, axis=1, keepdims=True) > 0
        starts.append((_normalised(np.where(known, toward, other)), keys))
    best = max(starts, key=value)
    if not steps or value(best) > _SATURATED:
        return best
    return climb(model, *best, steps=steps, sharpness=_SHARPNESS, solid=False)


def _model(head: Head, n: int, sides: tuple[Side, Side], share: float) -> Model:
    """Float logits of points on the two spheres, the own key's and the sink's in further columns.

    With QK norm the own key depends on all of the input, and the ascent leaves it out.
    """
    query, key = sides
    scale, cap = head.scale.upper, head.soft_cap
    turn = _turning(head, n)
    own = _own_map(head, query)

    def model(x: Array, y: Array) -> tuple[Array, Pull]:
        q, k = x @ query.forth.T + query.offset, share * (y @ key.forth.T) + key.offset
        turned = turn(k, 1.0)
        columns = [scale * (q @ turned.T)]
        mine = None
        if own is not None:
            mine = x @ own.T + key.offset
            columns.append(scale * np.sum(q * mine, axis=1, keepdims=True))
        logits = np.concatenate(columns, axis=1)
        if cap is not None:
            logits = cap * np.tanh(logits / cap)
        sink = [] if head.sink is None else [np.full((len(x), 1), head.sink)]

        def pull(slope: Array) -> tuple[Array, Array]:
            g = scale * slope[:, : logits.shape[1]]
            if cap is not None:
                g = g * (1 - (logits[:, : g.shape[1]] / cap) ** 2)
            to_query = g[:, :n] @ turned
            to_x = to_query @ query.forth
            if own is not None and mine is not None and g.shape[1] > n:
                to_x += (g[:, n:] * mine) @ query.forth + (g[:, n:] * q) @ own
            return to_x, share * (turn(g[:, :n].T @ q, -1.0) @ key.forth)

        return np.concatenate([logits, *sink], axis=1), pull

    return model


def _own_map(head: Head, query: Side) -> Array | None:
    """From the query's sphere to its token's own key, without the key offset."""
    assert head.query is not None
    assert head.key is not None
    assert head.reach is not None
    reach = head.reach
    if not head.self_attention or reach.query_norm is not None or reach.keys is not None:
        return None
    inputs = head.query.matrix.T @ query.back.T
    return np.asarray(head.key.radius.upper * (head.key.matrix @ inputs))


def _turning(head: Head, n: int) -> Callable[[Array, float], Array]:
    """Rotation of the key at lag j + 1 in row j, and with sign −1 its inverse."""
    rotary = head.rotary
    if rotary is None or not len(rotary.frequencies):
        return lambda rows, _: rows
    angle = rotary.angles(-np.arange(1, n + 1), length=visible_length(head, n))
    cos, sin = np.cos(angle), np.sin(angle)
    first, second = rotary.pairs.T

    def turn(rows: Array, sign: float) -> Array:
        out = rows.copy()
        out[:, first] = cos * rows[:, first] - sign * sin * rows[:, second]
        out[:, second] = sign * sin * rows[:, first] + cos * rows[:, second]
        return out

    return turn


def _normalised(points: Array) -> Array:
    sizes = np.linalg.norm(points, axis=1, keepdims=True)
    return np.asarray(points / np.maximum(sizes, 1e-300))


def visible_length(head: Head, n: int) -> int:
    """Tokens of the context in which a query sees n keys besides its own."""
    return n + 1 if head.self_attention else n
