"""The spread of a rotated head over the real offsets of one context length (T10).

Each lag holds one key, so a row's top and bottom key sit at different lags. Pairs of lags are
visited in the order of what their single-lag bounds allow, until no unvisited pair can exceed the
largest visited one (lag_pairs.py bounds a pair).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dispersion import witness
from dispersion.coupled_offsets import CoupledPairs
from dispersion.lag_pairs import LagPairs, pairs_in_order
from dispersion.narrow import narrowed
from dispersion.picked import PickedHead

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from dispersion.head import Head
from dispersion.lag_pairs import Pair

DEFAULT_BUDGET = 600.0
"""Seconds that an audit with exact offsets may take unless told otherwise."""

_UP = 1 + 2.0**-48
_TOLERANCE = 1.002
_MOST_PAIRS = 3000


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
    LagPairs(narrowed(head), max(lengths)).single(few)
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
    spread, pair = _over_pairs(scan.work, lags, scan.at(lags), deadline)
    if head.coupled is not None:
        coupled = CoupledPairs(scan.work.head, scan.work)
        spread = coupled.spread(lags, min(spread, free), deadline)
    found = None
    if pair is not None and head.reach is not None:
        near = np.arange(1, min(len(lags), 9), dtype=np.int64)
        seen = np.unique(np.concatenate([near, np.abs(np.array(pair.lags, dtype=np.int64))]))
        found = witness.evaluate(head, length, pair.direction, seen[seen > 0])
    return Outcome(min(spread, free), found)


class _Scan:
    """Single-lag bounds gathered so far for one head."""

    def __init__(self, head: Head, length: int) -> None:
        self.work = LagPairs(narrowed(head), length)
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
            self._bounds.update(zip(few.tolist(), self.work.logits(few).tolist(), strict=True))
            self._seconds += time.perf_counter() - started
        return deadline > time.monotonic()

    def at(self, lags: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.array([self._bounds[int(lag)] for lag in lags])


def _lags(head: Head, length: int) -> NDArray[np.int64]:
    # Keys that the model picks may stand anywhere.
    seen = length if isinstance(head, PickedHead) else head.visible(length)
    return np.arange(0 if head.causal else 1 - seen, seen, dtype=np.int64)


def _over_pairs(
    work: LagPairs, lags: NDArray[np.int64], singles: NDArray[np.float64], deadline: float
) -> tuple[float, Pair | None]:
    """The largest pair bound, or what the first unvisited pair allows where that is more."""
    order = np.argsort(-singles)
    best: Pair | None = None
    for count, (i, j, allowed) in enumerate(pairs_in_order(singles[order])):
        if best is not None and allowed <= best.bound * _TOLERANCE:
            return max(best.bound, min(allowed, best.bound * _TOLERANCE)), best
        if count >= _MOST_PAIRS or time.monotonic() > deadline:
            return allowed, best
        enough = 0.0 if best is None else best.bound
        pair = work.pair(int(lags[order[i]]), int(lags[order[j]]), allowed, enough)
        if best is None or pair.bound > best.bound:
            best = pair
    return (0.0 if best is None else best.bound), best
