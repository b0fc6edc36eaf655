"""Contexts of real token ids whose attention row is known: lower bounds for theory T15.

The query token comes last; at each lag before it stands the token with the smallest logit there,
but for the target, which has the largest. Farther away than the lags looked at stands one token
whose logit stays small at any angle. Logits are enclosed, so what is reported is reached in exact
arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dispersion.cholesky import gamma
from dispersion.embedding import States, norms, token_states
from dispersion.points import Logits, Point, dot, scaled, turned
from dispersion.queries import QueryPoint
from dispersion.token_vectors import Projection, blocks
from dispersion.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dispersion.embedding import EmbeddingInput
    from dispersion.head import Head

_UP = 1 + 2.0**-48
MOST_LAGS = 2048
PRODUCTS = 2e10  # multiplications that the keys of all lags may take
ENTRIES = 2**22  # logits held at once


@dataclass(frozen=True, eq=False)
class QueryToken:
    """A query token, and the key token whose logit against it stays smallest at any angle.

    Attributes:
        head: the head.
        token: the query's id.
        far: upper bound on the logit of `far_token` at any angle.
        far_token: its id.

    """

    head: Head
    token: int
    far: float
    far_token: int


@dataclass(frozen=True, eq=False)
class TokenWitness:
    """A row of token ids.

    Attributes:
        row: the logits; `high` and `low` are the extremes over the vocabulary at each lag.
        query: the query token and what stands beyond the lags of `row`.
        top, bottom: ids with the largest and the smallest logit at each lag.

    """

    row: Witness
    query: QueryToken
    top: NDArray[np.intp]
    bottom: NDArray[np.intp]

    def context(self, length: int) -> list[int]:
        """Token ids, the query last, whose row puts at least `row.coefficient` on the target."""
        seen = self.row.visible(length)
        ids = [self.query.far_token] * length
        ids[-1] = self.query.token
        if seen < 2:
            return ids
        if self.row.alike:
            ids[:-1] = [int(self.bottom[0])] * (length - 1)
            ids[-2] = int(self.top[0])
            return ids
        near = min(len(self.bottom), seen - 1)
        small = self.row.low.upper[:near] <= self.row.far
        for index in np.flatnonzero(small):
            ids[-2 - int(index)] = int(self.bottom[index])
        lag = int(np.argmax(self.row.high.lower[:near])) + 1
        ids[-1 - lag] = int(self.top[lag - 1])
        return ids


def token_witnesses(
    inputs: EmbeddingInput, queries: Sequence[QueryToken], length: int
) -> list[TokenWitness]:
    """A witness for heads that share their keys, in one pass over the table.

    Args:
        inputs: the token table; no learned positions.
        queries: heads of one kv head, each with the token to ask from.
        length: the context length whose rotation is used.

    """
    lags = _lags(queries, length, inputs.vocabulary)
    points = [_point(inputs, Projection(q.head, "query"), q.token) for q in queries]
    turns = [turned(q.head, p, lags, length) for q, p in zip(queries, points, strict=True)]
    rows = States(
        np.concatenate([np.asarray(z) for z, _ in turns]),
        np.repeat([error for _, error in turns], len(lags)),
    )
    key = Projection(queries[0].head, "key")
    high, low = _Best(len(rows.value)), _Best(len(rows.value))
    for part in blocks(inputs):
        keys = key.points(token_states(inputs, key.reach, part))
        step = max(1, ENTRIES // len(rows.value))
        for start in range(0, len(keys.value), step):
            piece = slice(start, start + step)
            value, slack = _products(rows, States(keys.value[piece], keys.error[piece]))
            high.keep(value - slack, part.start + start)
            low.keep(-(value + slack), part.start + start)
    found = []
    for index, (query, point) in enumerate(zip(queries, points, strict=True)):
        own = slice(index * len(lags), (index + 1) * len(lags))
        row = _row(inputs, query, point, length, lags, high.value[own], -low.value[own])
        found.append(TokenWitness(row, query, high.token[own], low.token[own]))
    return found


class _Best:
    """The largest value per row seen so far, and its token."""

    def __init__(self, rows: int) -> None:
        self.value = np.full(rows, -np.inf)
        self.token = np.zeros(rows, dtype=np.intp)

    def keep(self, values: NDArray[np.float64], first: int) -> None:
        chosen = np.argmax(values, axis=1)
        best = values[np.arange(len(values)), chosen]
        better = best > self.value
        self.value[better] = best[better]
        self.token[better] = first + chosen[better]


def _lags(queries: Sequence[QueryToken], length: int, vocabulary: int) -> NDArray[np.int64]:
    head = queries[0].head
    if head.rotary is None or len(head.rotary.frequencies) == 0:
        return np.array([1], dtype=np.int64)
    assert head.key is not None
    seen = length if head.window is None else min(length, head.window)
    affordable = PRODUCTS / (vocabulary * head.key.head_dim * len(queries))
    most = min(MOST_LAGS, max(seen - 1, 1), max(int(affordable), 1))
    return np.arange(1, most + 1, dtype=np.int64)


def _point(inputs: EmbeddingInput, side: Projection, token: int) -> Point:
    states = token_states(inputs, side.reach, slice(token, token + 1))
    found = side.points(states)
    return Point(found.value[0], float(found.error[0]))


def _products(rows: States, keys: States) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """⟨z, k⟩ for all pairs and the error of each, before the logit scale."""
    size_z, size_k = norms(rows.value), norms(keys.value)
    reach = gamma(keys.value.shape[1] + 4) * size_k + keys.error
    slack = np.outer(size_z, reach) + np.outer(rows.error, size_k + keys.error)
    return rows.value @ keys.value.T, slack * _UP


def _row(
    inputs: EmbeddingInput,
    query: QueryToken,
    point: Point,
    length: int,
    lags: NDArray[np.int64],
    high: NDArray[np.float64],
    low: NDArray[np.float64],
) -> Witness:
    head = query.head
    scale = head.scale.lower, head.scale.upper
    own_key = _point(inputs, Projection(head, "key"), query.token)
    own = scaled(dot(point.value[None], point.error, own_key), *scale)
    none = np.zeros(len(lags))
    return Witness(
        head=head,
        length=length,
        direction=point.value,
        point=QueryPoint(point, own_key, np.zeros(0)),
        own=own if head.self_attention else None,
        lags=lags,
        high=scaled(Logits(high, none), *scale),
        low=scaled(Logits(low, none), *scale),
        far=query.far,
        share=1.0,
    )
