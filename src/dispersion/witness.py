"""Concrete inputs whose attention row is known: lower bounds on spreads and coefficients.

A witness is one query token, a target token `lag` tokens earlier whose key is the best point of
its ball, and distractors whose keys are the worst points of theirs, each at its own lag. The query
token's own key takes the value that its input gives it. All logits are enclosed, so a coefficient
reported here is reached in exact arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dispersion import biased_witness, rigor
from dispersion.cholesky import gamma, is_positive_semidefinite, norm_upper
from dispersion.points import GramData, Logits, dot, scaled, turned
from dispersion.queries import QueryPoint, hidden_state, key_share, key_states, query_point
from dispersion.search import best_direction, candidate_lags

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.head import BallImage, Head
    from dispersion.rotary import Rotary

_UP = 1 + 2.0**-48
_DOWN = 1 - 2.0**-48


@dataclass(frozen=True, eq=False)
class Witness:
    """One query with enclosed logits of the keys it can meet (before the soft cap).

    Attributes:
        head: the head.
        length: the context length whose rotation is used.
        direction: y, from which the query token is made.
        point: the query token.
        own: its own key's logit, or None where the head does not attend to itself.
        lags: lags with their own enclosures, ascending from 1; without rotation all lags are alike.
        high, low: the largest and smallest logit that a key at each of `lags` can take.
        far: upper bound on the smallest logit a key can take at any lag.
        share: norm at which every direction of the key ball is reached.

    """

    head: Head
    length: int
    direction: NDArray[np.float64]
    point: QueryPoint
    own: Logits | None
    lags: NDArray[np.int64]
    high: Logits
    low: Logits
    far: float
    share: float

    def visible(self, length: int) -> int:
        """How many keys the last query sees in a context of `length` tokens."""
        return self.head.visible(length)

    def spread(self, length: int) -> float:
        """A spread reached by some row in a context of `length` tokens, in logits. **Lower.**"""
        if self.head.bias is not None:
            return biased_witness.spread(self, length)
        others = self.visible(length) - self._own_count
        if others < 1:
            return 0.0
        top, bottom = self._capped(length)
        candidates = [0.0]
        if self.own is not None:
            own_low, own_high = self._own_ends()
            candidates += [float(top.max()) - own_high, own_low - float(bottom.min())]
        if others > 1:
            if self.alike:
                candidates.append(float(top[0] - bottom[0]))
            elif len(top) > 1:
                # One lag holds one key: the top and the bottom key sit at different lags.
                first, last = np.argsort(-top)[:2], np.argsort(bottom)[:2]
                candidates += [float(top[i] - bottom[j]) for i in first for j in last if i != j]
        return max(candidates) * _DOWN

    def coefficient(self, length: int, tokens: int = 1) -> float:
        """What `tokens` tokens other than the query token hold together at this length. **Lower.**

        A context whose only keys are those tokens gives 1 without a sink.
        """
        if self.head.bias is not None:
            return biased_witness.coefficient(self, length, tokens)
        others = self.visible(length) - self._own_count
        if others < tokens:
            # A query that sees nothing but itself rests on itself.
            return 1.0 if self.visible(length) <= tokens and self.head.sink is None else 0.0
        top, bottom = self._capped(length)
        far = self._cap(self.far, up=True)
        if self.alike:
            target, rest = float(top[0]), [(float(bottom[0]), others - tokens)]
        else:
            if len(top) < tokens:
                return 0.0
            order = np.argsort(-top)
            target = float(top[order[tokens - 1]])
            explicit = np.minimum(bottom[order[tokens:]], far)
            rest = [(_log_sum(explicit), 1)] if len(explicit) else []
            rest.append((far, others - tokens - len(explicit)))
        if self.own is not None:
            rest.append((self._own_ends()[1], 1))
        if self.head.sink is not None:
            rest.append((self.head.sink, 1))
        one = rigor.softmax_coefficient(target, [*rest, (target, tokens - 1)]).lower
        return max(0.0, min(1.0, one * tokens * _DOWN if tokens > 1 else one))

    def inputs(self, length: int) -> NDArray[np.float64]:
        """Hidden states to feed the attention layer, shape (length, width), the query token last.

        The target is the token with the largest logit; every other token takes its smallest. Where
        keys are made of other states than queries there is one row more: `length` states that keys
        are made of, then the query's. In cross-attention the query is none of those tokens; where
        layers share keys it is the last of them.
        Floats near the exact witness: a model reproduces its coefficient to its own precision.
        """
        return _hidden_states(self, length)

    def target_lag(self, length: int) -> int:
        """How many tokens before the query token the target sits in a context of `length`."""
        seen = self.lags < max(self.visible(length), 2)
        return int(self.lags[seen][int(np.argmax(self.high.lower[seen]))])

    @property
    def alike(self) -> bool:
        return self.head.rotary is None or len(self.head.rotary.frequencies) == 0

    @property
    def _own_count(self) -> int:
        return 1 if self.head.self_attention else 0

    def _own_ends(self) -> tuple[float, float]:
        assert self.own is not None
        return (
            self._cap(float(self.own.lower[0]), up=False),
            self._cap(float(self.own.upper[0]), up=True),
        )

    def _capped(self, length: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower ends of the largest and upper ends of the smallest logits at reachable lags."""
        seen = self.lags < max(self.visible(length), 2)
        top, bottom = self.high.lower[seen], self.low.upper[seen]
        if self.head.soft_cap is None:
            return top, bottom
        return (
            np.array([self._cap(float(x), up=False) for x in top]),
            np.array([self._cap(float(x), up=True) for x in bottom]),
        )

    def _cap(self, logit: float, *, up: bool) -> float:
        cap = self.head.soft_cap
        if cap is None:
            return logit
        # c·tanh(l/c) is half the capped spread of 2l.
        half = rigor.capped_spread(2 * abs(logit), cap)
        if logit >= 0:
            return (half.upper if up else half.lower) / 2
        return -(half.lower if up else half.upper) / 2


def build(head: Head, length: int, lags: NDArray[np.int64] | None = None) -> Witness | None:
    """A witness for a head at one context length, or None where inputs cannot be constructed.

    Costs a few dozen head_dim² products, whatever the length.
    """
    if head.query is None or head.key is None or head.reach is None or length < 1:
        return None
    lags = candidate_lags(head, max(length, 2)) if lags is None else lags
    if not len(lags):
        lags = np.array([1], dtype=np.int64)
    return evaluate(head, length, best_direction(head, lags, length), lags)


def evaluate(
    head: Head, length: int, direction: NDArray[np.float64], lags: NDArray[np.int64]
) -> Witness | None:
    """The witness of one direction of the query, its logits enclosed at the given lags."""
    if head.query is None or head.key is None or head.reach is None:
        return None
    if not biased_witness.possible(head):
        return None
    share = key_share(head.reach.of_keys)
    if share <= 0:
        return None
    queries, keys = GramData.of(head.query), GramData.of(head.key)
    point = query_point(head, direction, queries, keys)
    if point is None:
        return None
    z, z_error = turned(head, point.query, lags, length)
    reach = keys.half_norm(z, z_error)
    radius = head.key.radius
    half = scaled(reach, radius.lower * share * _DOWN, radius.upper * share)
    constant = Logits(np.zeros(len(lags)), np.zeros(len(lags)))
    if head.key.offset is not None:
        constant = dot(z, z_error, head.key.offset_point)
    error = (half.error + constant.error) * _UP
    own = None
    if point.own_key is not None:
        own = dot(point.query.value[None], point.query.error, point.own_key)
    low, high = head.scale.lower, head.scale.upper
    return Witness(
        head,
        length,
        direction,
        point,
        None if own is None else scaled(own, low, high),
        lags,
        scaled(Logits(half.value + constant.value, error), low, high),
        scaled(Logits(constant.value - half.value, error), low, high),
        _far(head, point, keys, radius.lower * share * _DOWN),
        share,
    )


def _far(head: Head, point: QueryPoint, keys: GramData, radius: float) -> float:
    """Upper bound on the smallest logit a key can take, whatever the rotation angles."""
    assert head.key is not None
    query = point.query
    floor, share = _key_floor(head.key, head.rotary)
    least = 0.0
    if share > 0:
        square = share * float(floor @ query.value**2) * (1 - gamma(len(floor) + 32))
        slack = keys.largest * query.error + norm_upper(keys.row_error) * query.norm
        least = max(0.0, float(np.sqrt(square)) * _DOWN - slack * _UP)
    constant = 0.0
    if head.key.offset is not None:
        offset = head.key.offset
        for block in _blocks(head):
            if len(block) == 2:
                constant += float(
                    np.linalg.norm(offset[block]) * np.linalg.norm(query.value[block])
                )
            else:
                constant += float(offset[block] @ query.value[block])
        size = head.key.offset_point
        slack = (gamma(len(offset) + 8) * query.norm + query.error) * size.norm
        constant += (slack + size.error * query.norm) * _UP
    logit = constant - radius * least
    wide = head.scale.upper if logit > 0 else head.scale.lower
    return logit * wide + abs(logit) * 2.0**-50


@lru_cache(maxsize=1)  # query heads that share a key follow each other
def _key_floor(key: BallImage, rotary: Rotary | None) -> tuple[NDArray[np.float64], float]:
    """D and c ≥ 0 with Gram matrix ⪰ c·diag(D), proved, D equal within rotated pairs."""
    keys = GramData.of(key)
    gram = keys.gram
    floor = np.maximum(np.diag(gram), 0.0)
    if rotary is not None:
        first, second = rotary.pairs.T
        middle = (gram[first, first] + gram[second, second]) / 2
        apart = np.hypot((gram[first, first] - gram[second, second]) / 2, gram[first, second])
        floor[first] = floor[second] = np.maximum(middle - apart, 0.0)
    if not np.all(floor > 0):
        return floor, 0.0
    root = np.sqrt(floor)
    scaled = gram / np.outer(root, root)
    share = float(np.linalg.eigvalsh(scaled)[0]) * (1 - 2.0**-20)
    error = (keys.coefficient + gamma(8)) * float((keys.sizes / root) @ (keys.sizes / root))
    if share > 0 and is_positive_semidefinite(scaled - share * np.eye(len(gram)), error * _UP):
        return floor, share
    return floor, 0.0


def _blocks(head: Head) -> list[NDArray[np.intp]]:
    """Coordinates that turn together, and single ones that do not turn."""
    assert head.key is not None
    if head.rotary is None:
        return [np.array([i]) for i in range(head.key.head_dim)]
    return [*head.rotary.pairs, *[np.array([i]) for i in head.rotary.unrotated]]


def _log_sum(logits: NDArray[np.float64]) -> float:
    """Upper bound on log Σ e^l."""
    top = float(logits.max())
    total = float(np.exp(logits - top).sum())
    return top + float(np.log(total)) + (len(logits) + 16) * 2.0**-50 * (1 + abs(top))


def _hidden_states(witness: Witness, length: int) -> NDArray[np.float64]:
    head = witness.head
    assert head.key is not None
    assert head.reach is not None
    # Keys stand at lags 1, 2, …; a query that sees itself is one of them, at lag 0.
    last = length - 1 if head.self_attention else length
    seen = witness.visible(length) - (1 if head.self_attention else 0)
    lags = np.arange(1, seen + 1, dtype=np.int64)
    z, _ = turned(head, witness.point.query, lags, length)
    signs = np.where(lags == witness.target_lag(length), 1.0, -1.0)[:, None]
    states = np.zeros((last + 1, head.reach.width))
    states[:] = hidden_state(head.reach.of_keys, np.zeros(head.reach.of_keys.coordinates))
    if len(lags):
        states[last - lags] = key_states(head, signs * z, witness.share)
    if head.self_attention and head.reach.keys is not None:
        states[last] = key_states(head, -witness.point.query.value[None], witness.share)[0]
        return np.concatenate([states, witness.point.hidden[None]])
    states[-1] = witness.point.hidden
    return states
