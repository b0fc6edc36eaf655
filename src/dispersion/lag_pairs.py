"""Bounds on logits at one lag, and on logit differences between keys at two lags (T10).

For fixed lags the largest difference is the maximum of ‖X q‖ + ‖Y q‖ + zᵀq over the queries q, z
from the key bias. With ‖X q‖ ≤ (‖X q‖²/α + α)/2 that is a quadratic in the query's input, whose
maximum over the ball a multiplier bounds; nothing is lost at the best α and β without biases. The
query token's own key, at lag 0, has its input: that logit is a quadratic already (own_key.py).
"""

from __future__ import annotations

import contextlib
import heapq
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dispersion import own_key, rigor
from dispersion.cholesky import UNIT_ROUNDOFF, gamma, lambda_max_upper, norm_upper
from dispersion.covers import factor, rotated_mask, rotated_offset
from dispersion.ellipsoid import best_weight, cover
from dispersion.own_key import FARTHEST, Enough, JointBall, has_own_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dispersion.ellipsoid import Ellipsoid
    from dispersion.head import Head

_UP = 1 + 2.0**-48
_STEPS = 40
# Models compute the frequencies and the angles in float32.
_ANGLE_ROUNDING = 2.0**-23


@dataclass(frozen=True, eq=False)
class Pair:
    """The bound on a logit difference between keys at two lags, and a query that comes near."""

    bound: float
    lags: tuple[int, int]
    direction: NDArray[np.float64]
    norms: tuple[float, float]


@dataclass(frozen=True, eq=False)
class _Tuned:
    """α and β, the share of the query's ball, the best query's direction, its norms, the value."""

    sizes: tuple[float, float]
    share: float
    direction: NDArray[np.float64]
    norms: tuple[float, float]
    value: float = 0.0


class LagPairs:
    """One head at one length: single-lag and pair bounds, before the logit scale."""

    def __init__(self, head: Head, length: int) -> None:
        assert head.query is not None
        assert head.key is not None
        assert head.rotary is not None
        self.head, self.length = head, length
        self.query, self.key, self.rotary = head.query, head.key, head.rotary
        size = self.query.head_dim
        self.offset = rotated_offset(head)
        mask = rotated_mask(head)
        self.bare = cover(self.key, keep=np.zeros(size, dtype=np.bool_))
        weight = 0.5
        if self.offset is not None:
            weight = best_weight(self.bare.gram, self.offset)
        self.keys = cover(self.key, weight, keep=mask)
        self.share = 0.5
        if self.query.offset is not None and np.any(self.query.offset):
            self.share = best_weight(
                self.query.gram * self.query.radius.upper**2, self.query.offset
            )
        self.queries = self._factor(self.share)
        self.fastest = float(np.max(np.abs(self.rotary.frequencies_at(length)), initial=0.0))
        self.slack = self.queries[1] * self.key.norm_upper
        self.joint = JointBall.of(head, self.offset) if has_own_key(head) else None
        self.biased = self.query.offset is not None or self.offset is not None
        self._best: NDArray[np.float64] | None = None

    @property
    def length_matters(self) -> bool:
        """Whether the frequencies depend on the context length."""
        return self.rotary.length_dependent

    def _factor(self, share: float) -> tuple[NDArray[np.float64], float]:
        """A float factor whose ellipsoid covers the queries, and its norm."""
        found = cover(self.query, share)
        root, excess = factor(found)
        assert excess == 1.0
        return root, (float(np.linalg.norm(root, 2)) + found.slack) * (1 + 2.0**-30)

    def turned(self, root: NDArray[np.float64], lag: int) -> NDArray[np.float64]:
        """R(lag) applied to every column of a (head_dim, r) matrix, transposed: (r, head_dim)."""
        return self.rotary.rotate(root.T, np.full(root.shape[1], lag), length=self.length)

    def angle_slack(self, lag: int, root: NDArray[np.float64]) -> float:
        """What inexact angles and the rounding of a turned root can add to a logit."""
        angle = abs(lag) * self.fastest * _ANGLE_ROUNDING
        rounding = 16 * UNIT_ROUNDOFF * norm_upper(root.ravel()) * self.key.norm_upper
        return (self.slack * angle + rounding) * _UP

    def query_slack(self, share: float) -> float:
        """What the query matrix lacks of the exact one can add to a single logit."""
        found = cover(self.query, share)
        return found.slack * self.key.norm_upper * _UP

    def single(self, lags: NDArray[np.int64]) -> NDArray[np.float64]:
        """Bounds on |⟨R(lag) q, k⟩| for the part of the key that the spread sees."""
        root = self.queries[0]
        extra = self.query_slack(self.share)
        return np.array(
            [
                self.keys.image_norm_upper(self.turned(root, int(lag)))
                + extra
                + self.angle_slack(int(lag), root)
                for lag in lags
            ]
        )

    def logits(self, lags: NDArray[np.int64]) -> NDArray[np.float64]:
        """`single` with the logit scale and the soft cap."""
        values = self.single(lags) * (self.head.scale.upper * _UP)
        if self.head.soft_cap is None:
            return values
        # Half the capped spread of 2l is the capped l.
        return np.array(
            [rigor.capped_spread(2 * float(v), self.head.soft_cap).upper / 2 for v in values]
        )

    def pair(self, first: int, second: int, allowed: float, enough: float = 0.0) -> Pair:
        """The bound on a logit difference between keys at two lags, cap and scale included.

        Args:
            first, second: the lags.
            allowed: a bound that is known, which no result exceeds.
            enough: below which nothing is gained; the search for a lower bound ends there.

        """
        before = self._before(enough)
        found = self._ordered(first, second, enough=before)
        biased = self.query.offset is not None and self.offset is not None
        if biased or (self.joint is not None and 0 in (first, second)):
            # Otherwise the two orders mirror each other.
            other = self._ordered(second, first, enough=before)
            found = max(found, other, key=lambda pair: pair.bound)
        scale = self.head.scale.upper * _UP
        spread = found.bound * scale
        cap = self.head.soft_cap
        if cap is not None:
            spread = rigor.capped_spread(spread, cap).upper
            own = self.joint is not None and 0 in found.lags
            if spread > enough and not self.biased and not own:
                spread = min(spread, self._under_tangents(found, cap, scale))
        return replace(found, bound=min(spread, allowed))

    def _before(self, spread: float) -> float:
        """About what a spread is before the cap and the logit scale."""
        cap, scale = self.head.soft_cap, self.head.scale.upper
        if cap is not None:
            spread = 2 * cap * math.atanh(spread / (2 * cap)) if spread < 2 * cap else math.inf
        return spread / scale * (1 - 1e-6) if scale > 0 else 0.0

    def _under_tangents(self, found: Pair, cap: float, scale: float) -> float:
        """The largest capped difference, each cap replaced by a tangent above it (no biases)."""
        best = math.inf
        for _ in range(3):
            heights = [math.tanh(scale * norm / cap) for norm in found.norms]
            slopes = tuple(max(1 - h * h, 1e-12) for h in heights)
            found = self._ordered(*found.lags, slopes=slopes)
            rest = rigor.total(*(rigor.capped_intercept(t, cap) for t in slopes)).upper
            best = min(best, (found.bound * scale + rest) * _UP)
        return best

    def _ordered(
        self,
        first: int,
        second: int,
        slopes: tuple[float, ...] = (1.0, 1.0),
        *,
        enough: float = 0.0,
    ) -> Pair:
        """The bound on the first lag's logit less the second's, each weighted by its slope."""
        lags = (first, second)
        if 0 in lags and self.joint is not None:
            return self._with_own_key(lags, slopes, enough)
        tuned = self._tune(first, second, slopes, enough)
        root, share = self.queries[0], self.share
        if self.biased:
            # One more coordinate, worth 1 for every query, carries the bias and the constant.
            root, share = self._lifted(tuned.share)
        matrix = np.zeros((root.shape[1], root.shape[1]))
        error = slack = constant = 0.0
        for lag, size, slope in zip(lags, tuned.sizes, slopes, strict=True):
            part, part_error, part_slack = lag_form(self.bare, self.turned(root, lag))
            # ‖Xq‖ ≤ (‖Xq‖²/α + α)/2 for every α > 0.
            matrix += part * (slope / (2 * size))
            error += part_error * (slope / (2 * size))
            slack += part_slack
            constant += slope * size / 2
        if self.biased and self.offset is not None:
            gap = self._gap(first, second)
            line = root.T @ gap / (2 * math.sqrt(1 - share))
            matrix[-1] += line
            matrix[:, -1] += line
            reach = np.abs(root).T @ np.abs(gap) / math.sqrt(1 - share)
            error += 64 * len(gap) * UNIT_ROUNDOFF * float(reach.sum())
        error += 16 * UNIT_ROUNDOFF * float(np.abs(np.diag(matrix)).sum())
        # Where the search ended early, its value does.
        early = tuned.value - constant > 0 and tuned.value <= enough
        guess = (tuned.value - constant) * (1 + 2.0**-32) if early else None
        top = max(0.0, lambda_max_upper(matrix, error * _UP, guess=guess))
        bound = (top + constant) * _UP + slack + 2 * self.query_slack(share)
        bound += sum(self.angle_slack(lag, root) for lag in lags)
        return Pair(bound * _UP, lags, tuned.direction, tuned.norms)

    def _with_own_key(
        self, lags: tuple[int, int], slopes: tuple[float, ...], enough: float
    ) -> Pair:
        """`_ordered` where one of the lags is 0, the query token's own."""
        assert self.joint is not None
        sign = 1.0 if lags[1] == 0 else -1.0
        lag = lags[0] if sign > 0 else lags[1]
        weights = (slopes[0], slopes[1]) if sign > 0 else (slopes[1], slopes[0])
        size = self.query.head_dim
        turned = self.rotary.rotate(np.eye(size), np.full(size, lag), length=self.length).T
        line = np.zeros(size)
        if self.offset is not None:
            line = self.rotary.rotate(self.offset, np.array([-lag]), length=self.length)[0]
        form = turned.T @ self.bare.gram @ turned
        alpha, share, norm, own, query = own_key.tuned(
            self.joint, form, line, sign, weights, enough=enough
        )
        bound = own_key.certified(self.joint, turned, self.bare, line, sign, weights, alpha, share)
        root = np.column_stack([self.joint.query, self.joint.query_offset])
        bound += self.angle_slack(lag, root)
        # Queries and own keys may differ from the float ones by their slacks.
        reach = self.query.norm_upper, self.key.norm_upper
        bound += 2 * self.joint.query_slack * reach[1] + self.joint.key_slack * reach[0]
        if self.bare.row_error is not None:
            bound += norm_upper(self.bare.row_error) * reach[0]
        pull = form @ query / max(norm, 1e-300) + sign * line
        # The own logit counts with the sign in which the pair has it.
        norms = (norm, -own) if sign > 0 else (own, norm)
        return Pair(bound * _UP, lags, pull, norms)

    def _lifted(self, share: float) -> tuple[NDArray[np.float64], float]:
        """[L/√w, a/√(1−w)] with L Lᵀ covering the query matrix, and the w in use."""
        share = min(max(share, 2.0**-20), 1 - 2.0**-20)
        bare = self._bare
        offset = np.zeros(len(bare)) if self.query.offset is None else self.query.offset
        grown = 1 + 8 * UNIT_ROUNDOFF
        columns = [bare * (grown / math.sqrt(share)), offset * (1 / math.sqrt(1 - share))]
        return np.column_stack(columns), share

    @cached_property
    def _bare(self) -> NDArray[np.float64]:
        """A float factor whose ellipsoid covers the queries without their bias."""
        root, excess = factor(cover(self.query, keep=np.zeros(self.query.head_dim, dtype=np.bool_)))
        assert excess == 1.0
        return root

    def _gap(self, first: int, second: int) -> NDArray[np.float64]:
        """(R(first) − R(second))ᵀ c."""
        assert self.offset is not None
        turned = self.rotary.rotate(self.offset, np.array([-first, -second]), length=self.length)
        return np.asarray(turned[0] - turned[1])

    def _tune(self, first: int, second: int, slopes: tuple[float, ...], enough: float) -> _Tuned:
        """α, β, the share and the best query's direction, by fixed-point steps (floats only)."""
        from scipy.optimize import minimize

        size = self.query.head_dim
        base = self.query.gram * self.query.radius.upper**2
        base = base + 1e-13 * (float(np.trace(base)) / size + 1e-300) * np.eye(size)
        root = np.linalg.cholesky(base)
        offset = np.zeros(size) if self.query.offset is None else self.query.offset
        gap = np.zeros(size) if self.offset is None else self._gap(first, second)
        forms = []
        for lag in (first, second):
            turned = self.rotary.rotate(np.eye(size), np.full(size, lag), length=self.length)
            forms.append(turned @ self.bare.gram @ turned.T)
        biased, kept = self.biased, _Tuned((1.0, 1.0), 1.0, np.zeros(size), (0.0, 0.0))
        least, weights = math.inf, np.array(slopes)

        def bound(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            sizes = np.exp(x[:2])
            # Beside a bias of next to nothing the best share rounds to 1.
            odds = np.exp(-np.clip(x[2], -FARTHEST, FARTHEST)) if biased else 0.0
            share = float(1 / (1 + odds))
            nonlocal least, kept
            halves = weights / (2 * sizes)
            form = forms[0] * halves[0] + forms[1] * halves[1]
            image = root / math.sqrt(share)
            rest = math.sqrt(1 - share)
            if biased:
                image = np.column_stack([image, offset / rest])
            matrix = image.T @ form @ image
            if biased:
                line = image.T @ gap / (2 * rest)
                matrix[-1] += line
                matrix[:, -1] += line
            values, vectors = np.linalg.eigh(matrix)
            v = vectors[:, -1]
            q = image @ v
            terms = np.array([float(q @ f @ q) for f in forms])
            slope = np.zeros_like(x)
            slope[:2] = weights * sizes / 2 - terms * halves
            if biased:
                constant = offset * (v[-1] / rest)
                move = constant / (2 * rest**2) - (q - constant) / (2 * share)
                along = float(gap @ move) + float(gap @ q) / (2 * rest**2)
                slope[2] = (2 * float(q @ form @ move) + along * v[-1] / rest) * share * (1 - share)
            value = float(values[-1]) + float(weights @ sizes) / 2
            if value < least:
                norms = np.sqrt(np.maximum(terms, 1e-300))
                turn = math.copysign(1.0, v[-1]) if biased else 1.0
                pull = forms[0] @ q * (slopes[0] / norms[0]) + forms[1] @ q * (slopes[1] / norms[1])
                pair = float(sizes[0]), float(sizes[1])
                least = value
                ends = float(norms[0]), float(norms[1])
                kept = _Tuned(pair, share, pull * turn + gap, ends, value)
                if value <= enough:
                    raise Enough
                self._best = x.copy()
            return value, slope

        # Sizes far out of range end the search, not the bound: any numbers are valid.
        with np.errstate(all="ignore"), contextlib.suppress(np.linalg.LinAlgError, Enough):
            if enough and self._best is not None:
                bound(self._best)  # most pairs are far below the largest, and alike
            typical = [0.5 * math.log(max(float(np.sum(f * base)) / size, 1e-300)) for f in forms]
            near = min(max(self.share, 2.0**-20), 1 - 2.0**-20)
            share = [math.log(near / (1 - near))] if biased else []
            start = np.array([*typical, *share])
            minimize(bound, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
        return kept


def lag_form(
    keys: Ellipsoid, transform: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float, float]:
    """Transform F Fᵀ transformᵀ with the bounds on its error and on what row errors add."""
    matrix = transform @ keys.gram @ transform.T
    modulus = np.abs(transform)
    sizes = modulus @ keys.sizes
    error = (keys.coefficient + gamma(2 * len(keys.sizes) + 8)) * float(sizes @ sizes) * _UP
    slack = 0.0
    if keys.row_error is not None:
        slack = norm_upper(modulus @ keys.row_error)
    return np.tril(matrix) + np.tril(matrix, -1).T, error, slack


def pairs_in_order(values: NDArray[np.float64]) -> Iterator[tuple[int, int, float]]:
    """Pairs i < j of descending values, in descending order of their sum."""
    heap = [(-(values[0] + values[1]), 0, 1)] if len(values) > 1 else []
    while heap:
        total, i, j = heapq.heappop(heap)
        yield i, j, -float(total) * _UP
        if j + 1 < len(values):
            heapq.heappush(heap, (-(values[i] + values[j + 1]), i, j + 1))
        if j == i + 1 and j + 1 < len(values):
            heapq.heappush(heap, (-(values[i + 1] + values[j + 1]), i + 1, j + 1))
