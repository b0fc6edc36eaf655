"""Contexts in which a head retrieves any of n tokens, from inputs of its attention layer.

The queries belong to different tokens put at one and the same position; the n keys before it are
the same for all of them, one at each of the lags 1..n. A query token's own key is none of the n,
but the head attends to it: it stands in the denominator, as does a learned sink.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from dispersion._enclosing import count_of
from dispersion.balls import product
from dispersion.cholesky import UNIT_ROUNDOFF, gamma
from dispersion.contexts import Context, least_coefficient
from dispersion.errors import ArgumentError
from dispersion.head_ascent import Side, search, visible_length
from dispersion.points import GramData, Logits, dot, query_along, scaled
from dispersion.queries import key_share, key_states, query_point

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.head import Head
    from dispersion.points import Point
    from dispersion.queries import QueryPoint

LONGEST = 512
"""Keys in the largest context that is built: a step costs n² · head_dim operations."""

_UP = 1 + 2.0**-48


@dataclass(frozen=True, eq=False)
class HeadContext(Context):
    """A context of one head, evaluated rigorously: keys and queries before their rotation.

    `keys` and `queries` have shape (n, head_dim) and are floats next to the exact points. Key j
    sits `j + 1` tokens before the query.

    Attributes:
        head: the head.
        hidden_queries: hidden states of the query tokens, shape (n, width).
        hidden_keys: hidden states of the key tokens, shape (n, width).
        hidden_own: where a query token's own key is made of other states, those, shape (n, width).

    """

    head: Head = field(repr=False)
    hidden_queries: NDArray[np.float64] = field(repr=False)
    hidden_keys: NDArray[np.float64] = field(repr=False)
    hidden_own: NDArray[np.float64] | None = field(default=None, repr=False)

    def inputs(self, index: int) -> NDArray[np.float64]:
        """Hidden states for query `index` in token order, shape (n + 1, width), the query last.

        Where its own key is made of other states, these come before it, and there are n + 2.

        The last row of attention puts at least `coefficient` on token n − 1 − index, to the
        precision of the model.
        """
        one = slice(index, index + 1)
        own = [] if self.hidden_own is None else [self.hidden_own[one]]
        return np.concatenate([self.hidden_keys[::-1], *own, self.hidden_queries[one]])


def head_context(head: Head, n: int, *, seed: int = 0, steps: int = 150) -> HeadContext | None:
    """The best context found in which a head retrieves any of n keys. **Lower**, rigorous.

    None where inputs cannot be constructed: no norm cap, an unknown way to the inputs, or weights
    that are zero. Deterministic for a seed; a few seconds for 256 keys and head_dim 64. Points are
    sought on the surfaces of the balls, so that a head of rank one may do slightly better.

    Args:
        head: the head; soft cap, sink, rotation and biases are taken into account.
        n: keys common to all queries, 1..512, within the window. A causal head over n + 1 tokens
            has n of them.
        seed: of the random starts.
        steps: iterations of the ascent; 0 for the best start as it is.

    Raises:
        ArgumentError: n is not a whole number in 1..512, or more than the window shows.
    """
    n = count_of("n", n)
    own = 1 if head.self_attention else 0
    most = LONGEST if head.window is None else min(LONGEST, head.window - own)
    if n > most:
        msg = f"n must not exceed {most} keys for a context of this head. Got {n}."
        raise ArgumentError(msg)
    if head.query is None or head.key is None or head.reach is None:
        return None
    share = key_share(head.reach.of_keys)
    sides = Side.of(head.query), Side.of(head.key)
    if share <= 0 or not all(side.rank for side in sides):
        return None
    with threadpool_limits(1, user_api="blas"):  # faster for products this small, and repeatable
        queries, keys = search(head, n, sides, share, np.random.default_rng(seed), steps)
    return evaluate(head, queries @ sides[0].back, keys @ sides[1].back, share)


def evaluate(
    head: Head,
    query_directions: NDArray[np.float64],
    key_directions: NDArray[np.float64],
    share: float,
) -> HeadContext | None:
    """The context of inputs u ∝ Aᵀy and v ∝ Cᵀz for given directions y and z, enclosed.

    Args:
        head: a head whose inputs are known.
        query_directions, key_directions: shape (n, head_dim), query i for key i.
        share: norm at which every direction of the key ball is reached.
    """
    assert head.query is not None
    assert head.key is not None
    of_queries, of_keys = GramData.of(head.query), GramData.of(head.key)
    shrunk = replace(head.key, radius=product(head.key.radius, share))
    queries = [query_point(head, y, of_queries, of_keys) for y in query_directions]
    keys = [query_along(shrunk, of_keys, y) for y in key_directions]
    some_queries = [q for q in queries if q is not None]
    some_keys = [k for k in keys if k is not None]
    if len(some_queries) + len(some_keys) < len(queries) + len(keys):
        return None
    low, high = _logits(head, some_queries, some_keys)
    coefficient = least_coefficient(low, high, extra=_extra(head, some_queries))
    own = None
    if head.self_attention and head.reach is not None and head.reach.keys is not None:
        own = key_states(head, -np.stack([q.query.value for q in some_queries]), share)
    return HeadContext(
        np.stack([k.value for k in some_keys]),
        np.stack([q.query.value for q in some_queries]),
        coefficient,
        head,
        np.stack([q.hidden for q in some_queries]),
        key_states(head, key_directions, share),
        own,
    )


def _logits(
    head: Head, queries: list[QueryPoint], keys: list[Point]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of the logits of every query and key, key j at lag j + 1, soft cap included."""
    n = len(keys)
    k = np.stack([p.value for p in keys])
    size = np.array([p.norm for p in keys])
    error = np.array([p.error for p in keys])
    if head.rotary is not None and len(head.rotary.frequencies):
        lags, length = np.arange(1, n + 1), visible_length(head, n)
        k = head.rotary.rotate(k, -lags, length=length)
        fastest = float(np.max(np.abs(head.rotary.frequencies_at(length))))
        error = (error + 8 * UNIT_ROUNDOFF * (lags * fastest + 1) * size) * _UP
    q = np.stack([p.query.value for p in queries])
    q_error = np.array([p.query.error for p in queries])[:, None]
    q_size = np.array([p.query.norm for p in queries])[:, None]
    slack = q_size * (gamma(q.shape[1] + 8) * size + error) + q_error * (size + error)
    found = scaled(Logits(q @ k.T, slack * _UP), head.scale.lower, head.scale.upper)
    return _capped(head, found.lower, up=False), _capped(head, found.upper, up=True)


def _extra(head: Head, queries: list[QueryPoint]) -> NDArray[np.float64] | None:
    """Upper ends of the logits of each query token's own key and of the sink, shape (n, m)."""
    columns = []
    if head.self_attention:
        own = [
            scaled(dot(p.query.value[None], p.query.error, p.own_key), *_ends(head)).upper
            for p in queries
            if p.own_key is not None
        ]
        columns.append(_capped(head, np.concatenate(own), up=True))
    if head.sink is not None:
        columns.append(np.full(len(queries), head.sink))
    return np.stack(columns, axis=1) if columns else None


def _ends(head: Head) -> tuple[float, float]:
    return head.scale.lower, head.scale.upper


def _capped(head: Head, logits: NDArray[np.float64], *, up: bool) -> NDArray[np.float64]:
    """The soft cap of lower or upper ends; takes it that tanh is accurate to 12 digits."""
    cap = head.soft_cap
    if cap is None:
        return logits
    return np.asarray(cap * np.tanh(logits / cap) + (cap if up else -cap) * 2.0**-40)
