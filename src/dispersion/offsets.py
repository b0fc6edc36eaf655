"""The spread of a rotated head over the real offsets of one context length (T10).

Each lag holds one key, so a row's top and bottom key sit at different lags Δ ≠ Δ′. For fixed lags
the largest logit difference is the maximum over queries q of a sum of norms, and

    (‖X q‖ + ‖Y q‖ + |zᵀq|)² ≤ qᵀ (XᵀX/w₁ + YᵀY/w₂ + z zᵀ/w₃) q,   w₁ + w₂ + w₃ ≤ 1,

loses nothing at the best weights when there are two terms. Pairs are visited in the order of what
their single-lag bounds allow, until no unvisited pair can exceed the largest visited one.
"""

from __future__ import annotations

import heapq
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dispersion import rigor, witness
from dispersion.cholesky import UNIT_ROUNDOFF, gamma, lambda_max_upper, norm_upper
from dispersion.covers import factor, rotated_mask, rotated_offset
from dispersion.ellipsoid import best_weight, cover

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from dispersion.ellipsoid import Ellipsoid
    from dispersion.head import Head

DEFAULT_BUDGET = 600.0
"""Seconds that an audit with exact offsets may take unless told otherwise."""

_UP = 1 + 2.0**-48
_TOLERANCE = 1.002
_PAIRS = 3000
_STEPS = 14
# Models compute the frequencies and the angles in float32.
_ANGLE_ROUNDING = 2.0**-23


@dataclass(frozen=True, eq=False)
class Outcome:
    """The certified spread at one length, a witness near it, and remarks.

    `exact` is False where the free bound stands in for the exact one; `notes` then says why.
    """

    spread: float
    witness: witness.Witness | None
    exact: bool = True
    notes: tuple[str, ...] = ()


def estimated_seconds(head: Head, lengths: Iterable[int]) -> float:
    """About how long `exact_spreads` takes for this head, measured on a few lags."""
    scans = [_lags(head, length) for length in _scanned(head, set(lengths))]
    longest = max(scans, key=len, default=np.array([], dtype=np.int64))
    few = longest[-4:]
    if not len(few):
        return 0.0
    started = time.perf_counter()
    _Offsets(head, max(lengths)).single(few)
    return (time.perf_counter() - started) * sum(map(len, scans)) / len(few)


def exact_spreads(
    head: Head, lengths: Iterable[int], free: float, *, budget: float | None = None
) -> dict[int, Outcome]:
    """Certified spreads over the real offsets of contexts of these lengths. **Upper.**

    Free offsets were measured about 10 % above this in the median on small heads. A length's bound
    holds for every shorter context too, and for no longer one.

    Args:
        head: a rotated head with norm caps on both sides.
        lengths: tokens in the context; the last one asks.
        free: the bound over free phases, soft cap included; no result exceeds it.
        budget: seconds for all lengths together; lengths that do not fit get the free bound and a
            note.
    """
    wanted = sorted(set(lengths))
    deadline = time.monotonic() + (DEFAULT_BUDGET if budget is None else budget)
    found: dict[int, Outcome] = {}
    scan: _Scan | None = None
    for length in wanted:
        if scan is None or scan.work.length_matters:
            scan = _Scan(head, length)
        found[length] = _one_length(head, length, free, scan, deadline)
    return found


def exact_spread(head: Head, length: int, free: float, *, budget: float | None = None) -> Outcome:
    """`exact_spreads` at one length."""
    return exact_spreads(head, [length], free, budget=budget)[length]


def _scanned(head: Head, lengths: set[int]) -> list[int]:
    """The lengths whose lags have to be gone through: all where the frequencies depend on it."""
    if head.rotary is not None and head.rotary.length_dependent:
        return sorted(lengths)
    return [max(lengths)] if lengths else []


def _one_length(head: Head, length: int, free: float, scan: _Scan, deadline: float) -> Outcome:
    lags = _lags(head, length)
    if len(lags) < 2:
        return Outcome(0.0, None)
    note = f"exact offsets at {length} tokens did not fit the time budget; free offsets reported"
    fallback = Outcome(free, None, exact=False, notes=(note,))
    if not scan.extend(lags, deadline):
        return fallback
    bound, pair = _over_pairs(scan.work, lags, scan.at(lags), deadline)
    spread = bound * head.scale.upper * _UP
    if head.soft_cap is not None:
        spread = rigor.capped_spread(spread, head.soft_cap).upper
    found = None
    if pair is not None and head.reach is not None:
        near = np.arange(1, min(len(lags), 9), dtype=np.int64)
        seen = np.unique(np.concatenate([near, np.abs(np.array(pair.lags, dtype=np.int64))]))
        found = witness.evaluate(head, length, pair.direction, seen[seen > 0])
    return Outcome(min(spread, free), found)


class _Scan:
    """Single-lag bounds gathered so far for one head."""

    def __init__(self, head: Head, length: int) -> None:
        self.work = _Offsets(head, length)
        self._bounds: dict[int, float] = {}
        self._seconds = 0.0

    def extend(self, lags: NDArray[np.int64], deadline: float) -> bool:
        """Bound every lag not bounded yet; False where that cannot be done in time."""
        missing = [int(lag) for lag in lags if int(lag) not in self._bounds]
        for first in range(0, len(missing), 64):
            left = deadline - time.monotonic()
            each = self._seconds / len(self._bounds) if self._bounds else 0.0
            if left <= 0 or each * (len(missing) - first) > left:
                return False
            started = time.perf_counter()
            few = np.array(missing[first : first + 64], dtype=np.int64)
            self._bounds.update(zip(few.tolist(), self.work.single(few).tolist(), strict=True))
            self._seconds += time.perf_counter() - started
        return deadline > time.monotonic()

    def at(self, lags: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.array([self._bounds[int(lag)] for lag in lags])


def _lags(head: Head, length: int) -> NDArray[np.int64]:
    seen = length if head.window is None else min(length, head.window)
    return np.arange(0 if head.causal else 1 - seen, seen, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _Pair:
    bound: float
    lags: tuple[int, int]
    direction: NDArray[np.float64]


def _over_pairs(
    work: _Offsets, lags: NDArray[np.int64], singles: NDArray[np.float64], deadline: float
) -> tuple[float, _Pair | None]:
    """The largest pair bound, or what the first unvisited pair allows where that is more."""
    order = np.argsort(-singles)
    best: _Pair | None = None
    for count, (i, j, allowed) in enumerate(_pairs(singles[order])):
        if best is not None and allowed <= best.bound * _TOLERANCE:
            return max(best.bound, min(allowed, best.bound * _TOLERANCE)), best
        if count >= _PAIRS or time.monotonic() > deadline:
            return allowed, best
        pair = work.pair(int(lags[order[i]]), int(lags[order[j]]), allowed)
        if best is None or pair.bound > best.bound:
            best = pair
    return (0.0 if best is None else best.bound), best


def _pairs(values: NDArray[np.float64]) -> Iterator[tuple[int, int, float]]:
    """Pairs i < j of descending values, in descending order of their sum."""
    heap = [(-(values[0] + values[1]), 0, 1)] if len(values) > 1 else []
    while heap:
        total, i, j = heapq.heappop(heap)
        yield i, j, -float(total) * _UP
        if j + 1 < len(values):
            heapq.heappush(heap, (-(values[i] + values[j + 1]), i, j + 1))
        if j == i + 1 and j + 1 < len(values):
            heapq.heappush(heap, (-(values[i + 1] + values[j + 1]), i + 1, j + 1))


class _Offsets:
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

    def pair(self, first: int, second: int, allowed: float) -> _Pair:
        """The bound on a logit difference between keys at two lags."""
        weights, share, direction = self._tune(first, second)
        root = self._factor(share)[0] if share != self.share else self.queries[0]
        square = 0.0
        matrix = np.zeros((root.shape[1], root.shape[1]))
        error = slack = 0.0
        for lag, weight in ((first, weights[0]), (second, weights[1])):
            part, part_error, part_slack = _form(self.bare, self.turned(root, lag))
            matrix += part / weight
            error += part_error / weight
            slack += part_slack / math.sqrt(weight)
        if self.offset is not None:
            gap = self._gap(first, second)
            line = root.T @ gap
            matrix += np.outer(line, line) / weights[2]
            size = float(np.linalg.norm(np.abs(root).T @ np.abs(gap)))
            error += 64 * len(gap) * UNIT_ROUNDOFF * size * size / weights[2]
        error += 16 * UNIT_ROUNDOFF * float(np.abs(np.diag(matrix)).sum())
        square = lambda_max_upper(matrix, error * _UP)
        bound = math.sqrt(square) * _UP + slack
        bound += (
            2 * self.query_slack(share)
            + self.angle_slack(first, root)
            + self.angle_slack(second, root)
        )
        return _Pair(min(bound * _UP, allowed), (first, second), direction)

    def _gap(self, first: int, second: int) -> NDArray[np.float64]:
        """(R(first) − R(second))ᵀ c."""
        assert self.offset is not None
        turned = self.rotary.rotate(self.offset, np.array([-first, -second]), length=self.length)
        return np.asarray(turned[0] - turned[1])

    def _tune(
        self, first: int, second: int
    ) -> tuple[NDArray[np.float64], float, NDArray[np.float64]]:
        """Weights of the three terms, the query's share and the best query's direction (floats)."""
        gram = self.bare.gram
        size = len(gram)
        base = self.query.gram * self.query.radius.upper**2
        base = base + 1e-13 * (float(np.trace(base)) / size + 1e-300) * np.eye(size)
        root = np.linalg.cholesky(base)
        bias = self.query.offset
        forms = []
        for lag in (first, second):
            turned = self.rotary.rotate(np.eye(size), np.full(size, lag), length=self.length)
            forms.append(turned @ gram @ turned.T)
        gap = None if self.offset is None else self._gap(first, second)
        count = 2 if gap is None else 3
        weights = np.full(count, 1.0 / count)
        share = 1.0 if bias is None else self.share
        best, kept = math.inf, (weights, share, np.zeros(size))
        for _ in range(_STEPS):
            form = forms[0] / weights[0] + forms[1] / weights[1]
            if gap is not None:
                form = form + np.outer(gap, gap) / weights[2]
            image = root / math.sqrt(share)
            if bias is not None:
                image = np.column_stack([image, bias / math.sqrt(1 - share)])
            values, vectors = np.linalg.eigh(image.T @ form @ image)
            x = vectors[:, -1]
            q = image @ x
            terms = [math.sqrt(max(float(q @ f @ q), 1e-300)) for f in forms]
            if gap is not None:
                terms.append(abs(float(gap @ q)))
            if values[-1] < best:
                slope = forms[0] @ q / terms[0] + forms[1] @ q / terms[1]
                if gap is not None:
                    slope = slope + gap * math.copysign(1.0, float(gap @ q))
                    # The stored bias makes one sign of q the right one.
                best, kept = float(values[-1]), (weights.copy(), share, slope)
            weights = np.sqrt(weights * (np.array(terms) + 1e-9 * max(terms)) / sum(terms))
            weights = weights / weights.sum()
            if bias is not None:
                target = min(max(float(x[:-1] @ x[:-1]), 1e-6), 1 - 1e-6)
                share = math.sqrt(share * target) if target < share else (share + target) / 2
        weights, share, slope = kept
        return weights * (1 - 4 * UNIT_ROUNDOFF), share if bias is not None else self.share, slope


def _form(
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
