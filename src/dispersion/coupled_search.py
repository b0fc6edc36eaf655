"""Which cells cover the keys of latent attention well, at free phases.

Floats only; `coupled_keys.py` says what a cell covers and `coupled.py` certifies it. The bound of a
cell is minimised over the shares and the scales of a D-scaling together, through the smooth
stand-ins for λ_max of scaling.py; where nothing turns, ‖AᵀM‖ itself is over the shares. Intervals
of σ are halved where the bound is largest.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dispersion.coupled_forms import Forms, apart, centred, halves
from dispersion.covers import balanced
from dispersion.scaling import SMALL, Side, trace_norm

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.coupled_keys import Cell, CoupledKeys
    from dispersion.head import BallImage
    from dispersion.rotary import Rotary

    Matrix = NDArray[np.float64]

# (k of p = 2^k + 1, L-BFGS iterations), and those for large heads.
_STAGES, _ROUGH_STAGES = ((4, 8), (7, 12)), ((4, 6), (6, 6))
_FIRST = 0.1  # of the largest σ: where the first two cells meet
_SMALLEST = 5e-3  # of the largest σ: a cell that tells what can be won at most
_FARTHEST = 6.0  # how far logarithms move for one cell
_NARROW = 1.1  # ends of a cell whose ratio is below this are not told apart


@dataclass(frozen=True, eq=False)
class Interval:
    """σ from `lower` to `upper`, what covers it, and the value that this has in floats.

    `start` holds the variables at which the value was found.
    """

    lower: float
    upper: float
    value: float
    cell: Cell
    scales: Matrix
    start: Matrix


class Search:
    """The cells of one head.

    Args:
        query: the queries, without offset.
        keys: the keys.
        groups: labels of coordinates; those of one label share a scale.
        rotary: the rotation, or None.

    """

    def __init__(
        self,
        query: BallImage,
        keys: CoupledKeys,
        groups: NDArray[np.intp],
        rotary: Rotary | None,
    ) -> None:
        self.query, self.rotary = query, rotary
        self._largest = keys.states.largest
        gram = query.gram * query.radius.upper**2
        self._dtype = np.float64 if len(gram) <= SMALL else np.float32
        self._groups, self._count = groups, int(groups.max()) + 1
        if rotary is None:
            # Forms know no map that mixes the two parts, so queries stay apart from them.
            self.forward = self.backward = np.eye(len(gram))
            self._forms = Forms(keys)
            values, vectors = np.linalg.eigh(gram)
            self._root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
            self._count = 0
            return
        parts = apart(keys)
        self.forward, self.backward = balanced(gram, parts, rotary.unrotated)
        self._forms = Forms(keys, self.backward)
        self._query_gram = self.forward @ gram @ self.forward.T
        # Sums of squares: of few latent directions, rounding leaves diagonals of the above below 0.
        seen = self.forward @ query.matrix * query.radius.upper
        self._query_energy = np.einsum("ij,ij->i", seen, seen)
        self._query_side = Side(self._query_gram, None, self._dtype)

    @property
    def _start(self) -> Matrix:
        if self.rotary is None:
            return self._forms.start
        energy = [
            np.maximum(np.bincount(self._groups, weights=each), 1e-300)
            for each in (self._query_energy, self._forms.energy)
        ]
        # Not the logarithm of a quotient, which overflows where one side hardly has any.
        first = 0.25 * (np.log(energy[0]) - np.log(energy[1]))
        return np.concatenate([first, self._forms.start])

    def best(self, below: float, most: int) -> list[Interval]:
        """Intervals from 0 to the largest σ; none where they can hardly win.

        Args:
            below: what the bound of small σ has to be below.
            most: how many intervals may be solved.

        """
        start, top = self._start, self._largest
        least = self._solved(0.0, _SMALLEST * top, start)
        if not least.value < below:
            return []
        order = itertools.count()
        heap: list[tuple[float, int, Interval]] = []
        for ends, point in (((0.0, _FIRST * top), least.start), ((_FIRST * top, top), start)):
            found = self._solved(*ends, point)
            heapq.heappush(heap, (-found.value, next(order), found))
        for _ in range((most - 3) // 2):
            worst = heap[0][2]
            narrow = worst.lower > 0 and worst.upper < _NARROW * worst.lower
            if narrow or worst.upper < 2 * _SMALLEST * top:
                break
            heapq.heappop(heap)
            for ends in halves(worst.lower, worst.upper):
                child = self._solved(*ends, worst.start)
                if not child.value < worst.value:
                    # What covers the whole interval covers a part of it.
                    child = replace(worst, lower=ends[0], upper=ends[1])
                heapq.heappush(heap, (-child.value, next(order), child))
        return [entry[2] for entry in heap]

    def _solved(self, lower: float, upper: float, start: Matrix) -> Interval:
        from scipy.optimize import minimize

        ends = centred(lower, upper)
        point = start
        for power, iterations in _STAGES if len(self.forward) <= SMALL else _ROUGH_STAGES:
            found = minimize(
                self._objective,
                point,
                args=(ends, power),
                jac=True,
                method="L-BFGS-B",
                bounds=[(x - _FARTHEST, x + _FARTHEST) for x in start.tolist()],
                options={"maxiter": iterations, "maxcor": 20},
            )
            point = found.x
        at = self._forms.at(ends, point[self._count :])
        key = self._forms.gram(at)
        if self.rotary is None:
            scales = np.ones(len(key))
            square = float(np.linalg.eigvalsh(self._root @ key @ self._root)[-1])
        else:
            scales = np.exp(point[: self._count])[self._groups]
            tops = [
                float(np.linalg.eigvalsh(s[:, None] * gram * s)[-1])
                for s, gram in ((1 / scales, self._query_gram), (scales, key))
            ]
            square = tops[0] * tops[1]
        value = math.sqrt(max(square, 0.0))
        return Interval(lower, upper, value, self._forms.cell(at), scales, point)

    def _objective(self, x: Matrix, ends: tuple[float, float], power: int) -> tuple[float, Matrix]:
        """The logarithm of a cell's smooth bound and its gradient."""
        if self.rotary is None:
            at = self._forms.at(ends, x)
            key = self._root @ self._forms.gram(at) @ self._root
            found = trace_norm(key.astype(self._dtype), power)
            weight = self._root @ (found.weight * found.high) @ self._root
            return found.value, self._forms.slopes(weight, at)
        scales = np.exp(x[: self._count])[self._groups]
        value, row, _ = self._query_side.smooth_norm(1 / scales, 1.0, power)
        at = self._forms.at(ends, x[self._count :])
        key = scales[:, None] * self._forms.gram(at) * scales
        found = trace_norm(key.astype(self._dtype), power)
        weight = (found.weight * scales)[:, None] * found.high * scales
        by_scale = np.bincount(self._groups, weights=found.row - row, minlength=self._count)
        by_share = self._forms.slopes(weight, at)
        return value + found.value, np.concatenate([by_scale, by_share])
