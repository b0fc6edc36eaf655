"""The spread over real offsets where keys come in two parts of one state (T10).

A row's top and bottom key sit at two lags and in two intervals of σ (coupled_keys.py). Such
quadruples are branched on: lags in the order of what their single-lag bounds allow, as in
offsets.py, intervals by halving. At fixed lags and intervals the largest difference is that of
‖X q‖ + ‖Y q‖ over the queries, as in lag_pairs.py, with the shares of both cells chosen along.
Whenever it stops, the largest quadruple left bounds every row.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dispersion import rigor
from dispersion.cholesky import UNIT_ROUNDOFF, lambda_max_upper, norm_upper
from dispersion.coupled import coupled_cells
from dispersion.coupled_forms import Forms, centred, halves
from dispersion.ellipsoid import cover
from dispersion.lag_pairs import lag_form, pairs_in_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from dispersion.head import Head
    from dispersion.lag_pairs import LagPairs

    Matrix = NDArray[np.float64]
    Ends = tuple[float, float]

_UP = 1 + 2.0**-48
_SIGNS = (1.0, -1.0)
_RANGE = (-12.0, 12.0)  # of the variables, logarithms of shares and of sizes in natural units
_MOST = 80  # quadruples bounded at one length
_STEPS = 15
_NARROW = 1.1  # ends of an interval whose ratio is below this are not told apart
_SMALLEST = 1e-2  # of the largest σ: what is below is not told apart


@dataclass(frozen=True, eq=False)
class _Quadruple:
    """Two lags, two intervals, and the variables at which their bound was found."""

    lags: tuple[int, int]
    intervals: tuple[Ends, Ends]
    start: Matrix

    def wider(self, smallest: float) -> int | None:
        """The side whose interval is to be halved; None where neither is."""
        ratios = [
            0.0 if high <= smallest else math.inf if low == 0 else high / low
            for low, high in self.intervals
        ]
        side = int(np.argmax(ratios))
        return side if ratios[side] > _NARROW else None

    def parts(self, side: int) -> Iterable[_Quadruple]:
        for half in halves(*self.intervals[side]):
            pair = (half, self.intervals[1]) if side == 0 else (self.intervals[0], half)
            yield _Quadruple(self.lags, pair, self.start)


class CoupledPairs:
    """One head with coupled keys over the real offsets of one length.

    Args:
        head: the head.
        work: its single-lag and pair bounds without coupling.

    """

    def __init__(self, head: Head, work: LagPairs) -> None:
        assert head.coupled is not None
        self._head, self._work, self._keys = head, work, head.coupled
        self._scale = head.scale.upper * _UP
        self._cells = [cover(self._keys.image(cell.cell)) for cell in coupled_cells(head)[1]]
        self._forms = Forms(self._keys, centred=False)
        self._biased = self._keys.biased
        self._largest = self._keys.states.largest
        self._turned: dict[int, Matrix] = {}

    def spread(self, lags: NDArray[np.int64], allowed: float, deadline: float) -> float:
        """Upper bound on the spread over these lags, soft cap included, at most `allowed`."""
        if not self._cells:
            return allowed
        singles = []
        for lag in lags:
            if time.monotonic() > deadline:
                return allowed
            singles.append(self._single(int(lag)))
        values = np.array(singles)
        order = np.argsort(-values)
        waiting = _in_order(values[order], lags[order])
        following = next(waiting, None)
        heap: list[tuple[float, int, _Quadruple]] = []
        count = itertools.count()
        whole = (0.0, self._largest)
        start = np.concatenate([np.zeros(3), self._forms.start, self._forms.start])
        solved = 0
        while True:
            top = -heap[0][0] if heap else 0.0
            ahead = 0.0 if following is None else following[0]
            done = solved >= _MOST or time.monotonic() > deadline
            side = None
            if top >= ahead:
                side = heap[0][2].wider(_SMALLEST * self._largest) if heap else None
                done = done or side is None
            if done:
                return min(allowed, self._capped(max(top, ahead)))
            if top >= ahead:
                bound, _, parent = heapq.heappop(heap)
                assert side is not None
                children = [(-bound, child) for child in parent.parts(side)]
            else:
                assert following is not None
                children = [(ahead, _Quadruple(following[1], (whole, whole), start))]
                following = next(waiting, None)
            for limit, child in children:
                found, point = self._bound(child)
                solved += 1
                child = _Quadruple(child.lags, child.intervals, point)
                heapq.heappush(heap, (-min(found, limit), next(count), child))

    def _capped(self, spread: float) -> float:
        cap = self._head.soft_cap
        return spread if cap is None else rigor.capped_spread(spread, cap).upper

    def _at(self, lag: int) -> Matrix:
        """The factor of the queries' ellipsoid, turned: shape (r, head_dim)."""
        if lag not in self._turned:
            self._turned[lag] = self._work.turned(self._work.queries[0], lag)
        return self._turned[lag]

    def _single(self, lag: int) -> float:
        """Bound on the logits at one lag."""
        turned = self._at(lag)
        norm = max(
            cell.image_norm_upper(turned) + self._slack(lag, norm_upper(cell.sizes))
            for cell in self._cells
        )
        return norm * self._scale * _UP

    def _slack(self, lag: int, size: float) -> float:
        """What inexact angles and query matrices can add to a logit, before the scale.

        The factor that was turned is rounded, which counts with the size of the cell's image.
        """
        root = self._work.queries[0]
        rounding = 16 * UNIT_ROUNDOFF * norm_upper(root.ravel()) * size
        slack = self._work.query_slack(self._work.share) + self._work.angle_slack(lag, root)
        return (slack + rounding) * _UP

    def _bound(self, quadruple: _Quadruple) -> tuple[float, Matrix]:
        """The certified difference of logits, before the soft cap, and the variables."""
        from scipy.optimize import minimize

        turns = [self._at(lag) for lag in quadruple.lags]
        ends = [centred(*interval) for interval in quadruple.intervals]
        terms = len(self._forms.start)
        unit = self._work.queries[1] * self._work.key.norm_upper or 1.0
        size = len(turns[0])

        def value(x: Matrix) -> tuple[float, Matrix]:
            sizes = np.exp(x[:2]) * unit
            share = float(1 / (1 + np.exp(-x[2]))) if self._biased else 1.0
            total, gap, found = np.zeros((size, size)), np.zeros(size), []
            for i, (turn, end) in enumerate(zip(turns, ends, strict=True)):
                at = self._forms.at(end, self._logs(x, i))
                form = turn @ self._forms.gram(at) @ turn.T
                total += form / (2 * sizes[i])
                if self._biased:
                    gap += _SIGNS[i] * (turn @ self._forms.constant(at))
                found.append((form, at))
            if self._biased:
                total = _lifted(total, gap, share)
            values, vectors = np.linalg.eigh(total)
            v = vectors[:size, -1] / math.sqrt(share)
            last = vectors[-1, -1] / math.sqrt(1 - share) if self._biased else 1.0
            slope = np.zeros_like(x)
            for i, (form, at) in enumerate(found):
                own = float(v @ form @ v) / (2 * sizes[i])
                slope[i] = sizes[i] / 2 - own
                seen = turns[i].T @ v
                along = self._forms.slopes(np.outer(seen, seen) / (2 * sizes[i]), at)
                if self._biased:
                    along += self._forms.constant_slopes(seen * (_SIGNS[i] * last), at)
                    slope[2] -= own * (1 - share)
                slope[3 + i * terms : 3 + (i + 1) * terms] = along
            if self._biased:
                slope[2] += (gap @ v) * last * (share - 0.5)
            return (float(values[-1]) + float(sizes.sum()) / 2) / unit, slope / unit

        with np.errstate(all="ignore"):
            best = minimize(
                value,
                quadruple.start,
                jac=True,
                method="L-BFGS-B",
                bounds=[_RANGE] * len(quadruple.start),
                options={"maxiter": _STEPS},
            ).x
        return self._certified(quadruple, ends, best, unit), best

    def _certified(
        self, quadruple: _Quadruple, ends: list[tuple[float, float]], x: Matrix, unit: float
    ) -> float:
        """(‖Xq‖²/α + α + ‖Yq‖²/β + β)/2 + gap · q over the queries, as lag_pairs.py has it."""
        sizes = np.exp(x[:2]) * unit
        size = len(self._at(quadruple.lags[0]))
        matrix, gap, error, slack = np.zeros((size, size)), np.zeros(size), 0.0, 0.0
        reach = 0.0
        for i, lag in enumerate(quadruple.lags):
            keys = self._keys.image(self._forms.cell(self._forms.at(ends[i], self._logs(x, i))))
            bare = cover(keys, keep=np.zeros(keys.head_dim, dtype=np.bool_))
            turn = self._at(lag)
            part, part_error, part_slack = lag_form(bare, turn)
            matrix += part * (1 / (2 * sizes[i]))
            error += part_error / (2 * sizes[i])
            slack += part_slack + self._slack(lag, norm_upper(bare.sizes))
            if keys.offset is not None and keys.offset_error is not None:
                gap += _SIGNS[i] * (turn @ keys.offset)
                reach += float((np.abs(turn) @ np.abs(keys.offset)).sum())
                slack += norm_upper(keys.offset_error) * self._work.queries[1]
                slack += self._slack(lag, norm_upper(keys.offset))
        if self._biased:
            share = float(1 / (1 + np.exp(-x[2])))
            share = min(max(share, 2.0**-20), 1 - 2.0**-20)
            matrix = _lifted(matrix, gap, share)
            rounding = 64 * size * UNIT_ROUNDOFF * reach
            error = error / share + rounding / math.sqrt(share * (1 - share))
        # Coefficients are off by a few roundings each.
        error += (
            16 * UNIT_ROUNDOFF * (float(np.abs(np.diag(matrix)).sum()) + norm_upper(matrix[-1]))
        )
        top = max(0.0, lambda_max_upper(matrix, error * _UP))
        return (top + float(sizes.sum()) / 2 * _UP + slack) * self._scale * _UP

    def _logs(self, x: Matrix, side: int) -> Matrix:
        terms = len(self._forms.start)
        return x[3 + side * terms : 3 + (side + 1) * terms]


def _lifted(matrix: Matrix, line: Matrix, share: float) -> Matrix:
    """A form of (√w u, √(1−w)) that is uᵀ matrix u + line · u."""
    out = np.zeros((len(line) + 1,) * 2)
    out[:-1, :-1] = matrix / share
    out[-1, :-1] = out[:-1, -1] = line / (2 * math.sqrt(share * (1 - share)))
    return out


def _in_order(values: Matrix, lags: NDArray[np.int64]) -> Iterator[tuple[float, tuple[int, int]]]:
    """Ordered pairs of lags and the sum of their values, largest first, from descending values."""
    for i, j, allowed in pairs_in_order(values):
        # Which of the two is on top makes no difference: the cells are symmetric about 0.
        yield allowed, (int(lags[i]), int(lags[j]))
