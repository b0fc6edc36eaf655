"""What tables of distances add to logits where queries and keys are multiplied by their rows.

In DeBERTa the key at index δ has the logit s·(⟨q, k + K_δ⟩ + ⟨k, Q_δ⟩), δ telling how far it lies
before or behind the query. `distance_pairs.py` bounds a row's largest difference over the pairs of
indices that a context can hold.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dispersion import rigor
from dispersion.distance_pairs import Side, largest_difference, prepare
from dispersion.embedding import norms
from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.embedding import States
    from dispersion.enclosure import Enclosure
    from dispersion.head import BallImage

    Whole = NDArray[np.int64]

_UP = 1 + 2.0**-46
_FAR = 2**62


@dataclass(frozen=True)
class Places:
    """Which row of a table a key has: that of its bucket, the first row being bucket `low`.

    A bucket tells how far the key lies before the query; one outside of `low` to `high` counts as
    the nearest of them.

    Attributes:
        low, high: the buckets of the first and the last row.
        exact: distances up to this are buckets of their own; None where all are.
        furthest: the distance whose bucket is about the last; buckets grow with the logarithm from
            `exact` to there.
    """

    low: int
    high: int
    exact: int | None = None
    furthest: int = 0

    def __post_init__(self) -> None:
        # With an exact of 1 further buckets than the exact ones would be of that number too.
        grows = self.exact is None or 2 <= self.exact < self.furthest
        if not self.low <= 0 <= self.high or not grows:
            msg = (
                "low, 0 and high must ascend, and 2, exact and furthest where exact is set. Got "
                f"{self.low}, {self.high}, {self.exact}, {self.furthest}."
            )
            raise ArgumentError(msg)

    @property
    def rows(self) -> int:
        return self.high - self.low + 1

    @property
    def settled(self) -> int:
        """A length from which on all contexts hold the same pairs of indices."""
        return 2 * max(-self.low, self.high, self.furthest) + 3

    def ends(self, length: int) -> tuple[Whole, Whole]:
        """The least and the largest distance of each index in a context; least above it for none.

        Where buckets grow the whole range of distances stands for theirs.
        """
        far = length - 1
        bucket = np.arange(self.low, self.high + 1, dtype=np.int64)
        exact = self.rows if self.exact is None else self.exact
        low = np.where(bucket > exact, exact + 1, bucket)
        high = np.where(bucket < -exact, -exact - 1, bucket)
        low[bucket < -exact] = -_FAR
        high[bucket > exact] = _FAR
        low[0], high[-1] = -_FAR, _FAR
        low, high = np.maximum(low, -far), np.minimum(high, far)
        low[np.abs(bucket) > self._largest(far)] = _FAR
        return low, high

    def _largest(self, far: int) -> int:
        """Upper bound on the bucket of a distance."""
        if self.exact is None or far <= self.exact:
            return far
        ratio = math.log(far / self.exact) / math.log(self.furthest / self.exact)
        # One more than computed, since models round the logarithm to float32.
        return self.exact + int(ratio * (self.exact - 1) * (1 + 2.0**-16)) + 2

    def allowed(self, length: int) -> NDArray[np.bool_]:
        """Which two indices two keys of one row can have, shape (rows, rows)."""
        low, high = self.ends(length)
        reached = low <= high
        apart = np.maximum(low[:, None] - high, low - high[:, None])
        found = reached[:, None] & reached & (apart <= length - 1)
        # One distance holds one key.
        alone = np.flatnonzero(low == high)
        found[alone, alone] = False
        return np.asarray(found)


class JointBias(ABC):
    """What positions add to logits, where contents and positions are bounded together."""

    @property
    @abstractmethod
    def words(self) -> str:
        """A name for the report."""

    @property
    def one_sided(self) -> bool:
        return False

    @abstractmethod
    def settled(self) -> JointBias:
        """A bias with larger ceilings that fall with the length."""

    @abstractmethod
    def spread(self, length: int) -> float:
        """Upper bound on what positions alone add to the difference of two logits, by norms."""

    def around_own(self, length: int) -> None:  # noqa: ARG002
        """Nothing: contents and positions are not apart."""
        return

    @abstractmethod
    def joint(self, length: int) -> float:
        """Upper bound on the spread of a row, contents and positions together."""

    def whole(self, spread: float, length: int) -> float:
        """Upper bound on the spread of a row whose contents spread by at most `spread`."""
        return min(rigor.total(spread, self.spread(length)).upper, self.joint(length))

    def ceiling(self, spread: float, seen: int, tokens: int) -> float:
        """The most that `tokens` of `seen` keys hold together. **Upper.**"""
        return rigor.set_mass(tokens, seen, self.whole(spread, seen)).upper


@dataclass(frozen=True, eq=False)
class DistanceBias(JointBias):
    """Products of queries and keys with tables of distances, for one head.

    Attributes:
        query, key, scale: those of the head.
        keys: K, what is added to a key, shape (indices, head_dim), with errors of its rows.
        queries: Q, what is added to a query.
        places: which index a key has.
        levels: what is added at each index whatever the tokens, shape (indices, 1), or None.
        anywhere: whether all lengths count as if every pair of indices were there.
    """

    query: BallImage
    key: BallImage
    scale: Enclosure
    keys: States
    queries: States
    places: Places
    levels: States | None = None
    anywhere: bool = False
    _known: dict[int, float] = field(default_factory=dict, repr=False)

    @property
    def words(self) -> str:
        return "products with distances"

    def settled(self) -> DistanceBias:
        return replace(self, anywhere=True)

    @cached_property
    def _side(self) -> Side:
        return prepare(self.query, self.key, self.keys, self.queries, self.levels)

    def spread(self, length: int) -> float:  # noqa: ARG002
        sizes = (
            self.query.norm_upper * float(np.max(norms(self.keys.value) + self.keys.error)),
            self.key.norm_upper * float(np.max(norms(self.queries.value) + self.queries.error)),
        )
        apart = 0.0
        if self.levels is not None:
            apart = float(np.ptp(self.levels.value)) + 2 * float(self.levels.error.max())
        return (2 * sum(sizes) + apart) * self.scale.upper * _UP

    def joint(self, length: int) -> float:
        most = self.places.settled
        length = most if self.anywhere else min(length, most)
        if length not in self._known:
            found = largest_difference(self._side, self.places.allowed(length))
            self._known[length] = max(0.0, found) * self.scale.upper * _UP
        return self._known[length]
