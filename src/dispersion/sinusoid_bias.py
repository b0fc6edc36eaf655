"""Products of queries with projected sinusoids of the distance (Transformer-XL, conformers).

The key at distance δ has the logit s·(⟨q + u, k⟩ + ⟨q + v, W p(δ)⟩), u and v being learned vectors
and p(δ) the sine and the cosine of δ·f for each frequency f. With q + u for the query that is a
table of the rows W p(δ) and a constant ⟨v − u, W p(δ)⟩ for each of them, which `distance_pairs.py`
bounds in short contexts. At any length p(δ) has the norm √F for F frequencies, so that the products
of a row spread by at most 2·√F·max‖Wᵀ(q + v)‖.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dispersion.balls import sqrt_enclosure
from dispersion.cholesky import UNIT_ROUNDOFF, gamma, norm_upper
from dispersion.covers import joint_norm
from dispersion.distance_bias import DistanceBias, JointBias, Places
from dispersion.embedding import States, norms
from dispersion.head import BallImage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.enclosure import Enclosure

    Matrix = NDArray[np.float64]

EXPLICIT = 512
"""Longest context whose distances are told apart."""

# Models compute the frequencies and the angles in float32.
_ANGLE_ROUNDING = 2.0**-20
_UP = 1 + 2.0**-46


@dataclass(frozen=True, eq=False)
class SinusoidBias(JointBias):
    """Products of one head's queries with projected sinusoids.

    Attributes:
        query: the queries with u added to them; `key` and `scale` are the head's.
        weight: W, shape (head_dim, 2·frequencies), sine and cosine of a frequency side by side.
        between: v − u, shape (head_dim,).
        frequencies: in radians per position.
        anywhere: whether all lengths count as the longest.
    """

    query: BallImage
    key: BallImage
    scale: Enclosure
    weight: Matrix
    between: Matrix
    frequencies: Matrix
    anywhere: bool = False
    _known: dict[int, float] = field(default_factory=dict, repr=False)

    @property
    def words(self) -> str:
        return "products with sinusoids"

    def settled(self) -> SinusoidBias:
        return replace(self, anywhere=True)

    @cached_property
    def _asking(self) -> BallImage:
        """The queries with v added to them, q + v."""
        start = self.query.offset_point
        offset = start.value + self.between
        error = np.abs(offset) * (4 * UNIT_ROUNDOFF)
        if self.query.offset_error is not None:
            error = error + self.query.offset_error
        # v − u is rounded once.
        error = error + np.abs(self.between) * (4 * UNIT_ROUNDOFF)
        return replace(self.query, offset=offset, offset_error=error * _UP)

    @cached_property
    def _sinusoids(self) -> BallImage:
        """All vectors W p, ‖p‖ ≤ √F."""
        return BallImage(self.weight, radius=sqrt_enclosure(len(self.frequencies)))

    def spread(self, length: int) -> float:  # noqa: ARG002
        size = self._asking.norm_upper * self._sinusoids.norm_upper
        return 2 * size * self.scale.upper * _UP

    @cached_property
    def _free(self) -> float:
        """The spread of a row at any length, with the most of both parts."""
        contents = joint_norm(self.query, self.key)
        products = joint_norm(self._asking, self._sinusoids)
        return 2 * (contents + products) * self.scale.upper * _UP

    def joint(self, length: int) -> float:
        if self.anywhere or length > EXPLICIT:
            return self._free
        if length not in self._known:
            found = self.at(length).joint(length)
            self._known[length] = min(found, self._free)
        return self._known[length]

    def at(self, length: int) -> DistanceBias:
        """The same as tables, whose rows are the distances of a context of `length` tokens."""
        lags = np.arange(1 - length, length, dtype=np.float64)
        angles = lags[:, None] * self.frequencies
        waves = np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(len(lags), -1)
        rows = waves @ self.weight.T
        size = norm_upper(self.weight.ravel())
        # What angles are off by moves a wave by as much at most.
        off = np.abs(lags) * norm_upper(self.frequencies) * _ANGLE_ROUNDING
        wide = math.sqrt(2 * len(self.frequencies))
        error = size * (off + gamma(self.weight.shape[1] + 8) * wide) * _UP
        # v − u is rounded once, besides the roundings of the product.
        few = gamma(len(self.between) + 8)
        between = norm_upper(self.between)
        level_error = between * (error + few * (norms(rows) + error)) * _UP
        zeros = np.zeros_like(rows)
        return DistanceBias(
            query=self.query,
            key=self.key,
            scale=self.scale,
            keys=States(rows, error),
            queries=States(zeros, np.zeros(len(rows))),
            places=Places(1 - length, length - 1),
            levels=States((rows @ self.between)[:, None], level_error),
        )
