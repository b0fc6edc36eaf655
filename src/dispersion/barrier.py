"""D-scaling problems of many cells at once, by an interior-point method in floats.

A cell asks for the scales and multipliers that make

    λ_max(Σ e^{t_i} A_i − Σ λ_j F_j) + λ_max(Σ e^{−t_i} C_i − Σ λ′_j F′_j),   λ, λ′ ≥ 0,

small, where A_i = R_iᵀR_i for the two rows of pair i and F_j = sym(f gᵀ). Both terms are convex in
(t, λ, λ′), and with a free common factor in e^t half their sum is the root of their product at the
optimum. Newton's method follows the centre of −log det(aI − M) − log det(bI − M′) − Σ log λ; its
inverse matrices are the dual states, whose mixture says where to cut next (refine.py).

Nothing here is part of a proof: every result is a valid choice of scales and multipliers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg.lapack import dpotrf, sposv

from dispersion.newton import newton_system

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class _Pace:
    """How the barrier's weight falls.

    Attributes:
        start: the weight at first; 2.5e-4 is a gap of half a per cent or one.
        measured: whether a start far from the optimum gets a weight of that size.
        centred: Newton decrement below which the weight falls, and the gap's estimate holds.
        shrink: what it is multiplied by then.

    """

    start: float
    measured: bool
    centred: float
    shrink: float


# With the high decrement the estimate holds only roughly, which will do to sort cells.
_CAREFUL, _HASTY = _Pace(2.5e-4, True, 4.0, 0.1), _Pace(1e-3, False, 40.0, 0.4)
_STEPS = 40
_USUAL, _LEAST = 0.25, 0.05  # multipliers to start from
_HALVINGS = 12


@dataclass(frozen=True, eq=False)
class Cuts:
    """Constraints (f·z)(g·z) ≤ 0 of a batch of cells, on one side.

    Attributes:
        first, second: f and g, shape (cells, cuts, k), zero where a cell has fewer cuts.

    """

    first: NDArray[np.float64]
    second: NDArray[np.float64]

    @property
    def used(self) -> NDArray[np.bool_]:
        return np.asarray(np.any(self.first != 0, axis=2))


@dataclass(frozen=True, eq=False)
class Centres:
    """Solutions of a batch of cells.

    Attributes:
        value: √(ab), above the optimum, shape (cells,).
        floor: about a lower bound on the optimum, shape (cells,).
        logs: t, shape (cells, pairs).
        levels: a and b, shape (2, cells).
        multipliers: λ for the query and the key side, shapes (cells, cuts).
        states: dual states of both sides, trace 1, shape (2, cells, k, k).

    """

    value: NDArray[np.float64]
    floor: NDArray[np.float64]
    logs: NDArray[np.float64]
    levels: NDArray[np.float64]
    multipliers: tuple[NDArray[np.float64], NDArray[np.float64]]
    states: NDArray[np.float64]


def solve(
    rows: tuple[NDArray[np.float64], NDArray[np.float64]],
    cuts: tuple[Cuts, Cuts],
    start: NDArray[np.float64],
    multipliers: tuple[NDArray[np.float64], NDArray[np.float64]],
    *,
    enough: float = 0.0,
    sort_only: bool = False,
    gap: float = 2e-3,
) -> Centres:
    """Nearly optimal scales and multipliers of a batch of cells.

    Args:
        rows: R of the query and the key side, shape (2·pairs, k): first coordinates of the pairs,
            then second ones, scaled so that the optimum is near 1.
        cuts: the cells' cuts on each side.
        start: t to start from, shape (cells, pairs).
        multipliers: λ to start from for the query and the key side, 0 where nothing is known,
            shapes (cells, cuts).
        enough: a cell is left as soon as its value is at most this.
        sort_only: whether it is also left once its optimum seems to lie above `enough`.
        gap: relative gap to the optimum at which a cell is done anyway.

    """
    pace = _HASTY if sort_only else _CAREFUL
    work = _Batch(rows, cuts, start, np.concatenate(multipliers, axis=1), pace)
    for _ in range(_STEPS):
        if not work.step(enough, gap, sort_only):
            break
    return work.result()


class _Batch:
    """The iterate of every cell and the matrices that belong to it."""

    def __init__(
        self,
        rows: tuple[NDArray[np.float64], NDArray[np.float64]],
        cuts: tuple[Cuts, Cuts],
        start: NDArray[np.float64],
        multipliers: NDArray[np.float64],
        pace: _Pace,
    ) -> None:
        self.rows, self.cuts, self.pace = rows, cuts, pace
        self.tables = [_table(r) for r in rows]
        self.light = (
            [r.astype(np.float32) for r in rows],
            [t.astype(np.float32) for t in self.tables],
            [(c.first.astype(np.float32), c.second.astype(np.float32)) for c in cuts],
        )
        count, self.pairs = start.shape
        self.size = rows[0].shape[1]
        self.used = np.concatenate([c.used for c in cuts], axis=1)
        self.split = cuts[0].first.shape[1]
        self.logs = start.copy()
        known = np.where(multipliers > 0, np.maximum(multipliers, _LEAST), _USUAL)
        self.multipliers = np.where(self.used, known, 1.0)
        self.floor = np.zeros(count)
        self.freedom = 2 * self.size + self.used.sum(axis=1)
        forms = self._forms(np.arange(count), self.logs, self.multipliers)
        tops = np.stack([np.linalg.eigvalsh(m)[:, -1] for m in forms])
        even = np.sqrt(np.abs(tops[1] / tops[0]))
        self.logs += np.log(even)[:, None]
        for side, factor in enumerate((even, 1 / even)):
            tops[side] *= factor
            forms[side] *= factor[:, None, None]
            mine = slice(0, self.split) if side == 0 else slice(self.split, None)
            self.multipliers[:, mine] *= np.where(self.used[:, mine], factor[:, None], 1.0)
        self._set_weight(np.full(count, pace.start), tops, forms)
        if pace.measured:
            # Far from the optimum a narrow barrier would only slow the way there.
            weight = np.maximum(pace.start, self._gap(tops) / (2 * self.size))
            self._set_weight(weight, tops, forms)
        self.open = np.ones(count, dtype=np.bool_)

    def _set_weight(
        self,
        weight: NDArray[np.float64],
        tops: NDArray[np.float64],
        forms: list[NDArray[np.float64]],
    ) -> None:
        """Levels, barrier and inverses at the start, for one barrier weight a cell."""
        self.weight = weight
        self.levels = tops + weight * self.size / 2
        self.merit, roots = self._merit(np.arange(len(weight)), self.levels, forms)
        # (aI − M)⁻¹ = EᵀE, E the inverse of the Cholesky factor.
        self.factors = np.asarray(np.linalg.inv(roots), dtype=np.float64)
        self.merit -= np.where(self.used, np.log(self.multipliers), 0.0).sum(axis=1)

    def _gap(self, tops: NDArray[np.float64]) -> NDArray[np.float64]:
        """About how far the start is from the optimum, by the value of the start's dual states."""
        states = self.result().states
        shares = [
            states[side].reshape(len(self.logs), -1) @ table.T
            for side, table in enumerate(self.tables)
        ]
        found = np.sqrt(np.maximum(shares[0] * shares[1], 0.0)).sum(axis=1)
        return np.asarray(np.maximum(np.sqrt(np.abs(tops[0] * tops[1])) - found, 0.0))

    def result(self) -> Centres:
        states = np.swapaxes(self.factors, 2, 3) @ self.factors
        states /= np.einsum("scii->sc", states)[:, :, None, None]
        split = self.split
        return Centres(
            np.sqrt(self.levels[0] * self.levels[1]),
            self.floor,
            self.logs,
            self.levels,
            (self.multipliers[:, :split], self.multipliers[:, split:]),
            states,
        )

    def _forms(
        self, at: NDArray[np.intp], logs: NDArray[np.float64], multipliers: NDArray[np.float64]
    ) -> list[NDArray[np.float64]]:
        """M of both sides for the cells `at`."""
        out = []
        for side, sign in ((0, 1.0), (1, -1.0)):
            cuts = self.cuts[side]
            form = (np.exp(sign * logs) @ self.tables[side]).reshape(-1, self.size, self.size)
            if cuts.first.shape[1]:
                mine = multipliers[:, : self.split] if side == 0 else multipliers[:, self.split :]
                half = np.swapaxes(cuts.first[at] * (mine / 2)[:, :, None], 1, 2) @ cuts.second[at]
                form -= half
                form -= np.swapaxes(half, 1, 2)
            out.append(form)
        return out

    def _merit(
        self, at: NDArray[np.intp], levels: NDArray[np.float64], forms: list[NDArray[np.float64]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The barrier without its −log λ (infinite outside its domain), and Cholesky factors."""
        merit = levels.sum(axis=0) / self.weight[at]
        gaps = -np.stack(forms)
        index = np.arange(self.size)
        gaps[:, :, index, index] += levels[:, :, None]
        roots = _roots(gaps)
        merit -= 2 * np.log(np.einsum("scii->sci", roots)).sum(axis=(0, 2))
        return np.where(np.isnan(merit), np.inf, merit), roots

    def step(self, enough: float, gap: float, sort_only: bool) -> bool:
        """One Newton step of every open cell; whether any is still open."""
        at = np.flatnonzero(self.open)
        move, decrement = self._newton(at)
        self._advance(at, move, decrement)
        value = np.sqrt(self.levels[0, at] * self.levels[1, at])
        width = self.weight[at] * self.freedom[at] / 2
        centred = decrement < self.pace.centred
        floor = np.where(centred, self.levels[:, at].mean(axis=0) - 1.3 * width, 0.0)
        self.floor[at] = np.maximum(self.floor[at], floor)
        done = (value <= enough) | (centred & (width < gap))
        if sort_only:
            done |= floor > enough
        self.open[at[done]] = False
        smaller = at[centred & self.open[at]]
        before = self.weight[smaller]
        self.weight[smaller] *= self.pace.shrink
        self.merit[smaller] += self.levels[:, smaller].sum(axis=0) * (
            1 / self.weight[smaller] - 1 / before
        )
        return bool(self.open.any())

    def _newton(self, at: NDArray[np.intp]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Newton's move in (a, b, t, λ) and its decrement."""
        rows, tables, cuts = self.light
        hessian, gradient = newton_system(
            rows,
            tables,
            [(first[at], second[at]) for first, second in cuts],
            self.factors[:, at].astype(np.float32),
            self.logs[at].astype(np.float32),
        )
        rest = slice(2 + self.pairs, None)
        index = np.arange(2 + self.pairs, gradient.shape[1])
        gradient[:, :2] += 1 / self.weight[at][:, None]
        used, multipliers = self.used[at], self.multipliers[at]
        gradient[:, rest] -= np.where(used, 1 / multipliers, 0.0)
        hessian[:, index, index] += 1 / multipliers**2
        everything = np.arange(gradient.shape[1])
        hessian[:, everything, everything] *= 1 + 1e-6
        systems = zip(hessian, gradient, strict=True)
        move = np.stack([sposv(h.T, -g, lower=1, overwrite_a=1)[1] for h, g in systems])
        return move, -np.einsum("ci,ci->c", gradient, move)

    def _advance(
        self, at: NDArray[np.intp], move: NDArray[np.float64], decrement: NDArray[np.float64]
    ) -> None:
        """Moves every cell by the largest of 1, ½, ¼ … of a damped step that lowers its barrier."""
        # 1/(1 + δ) would stay in the domain of a self-concordant barrier; twice that mostly does.
        damping = np.minimum(1.0, 2 / (1 + np.sqrt(np.maximum(decrement, 0.0))))
        move, decrement = move * damping[:, None], decrement * damping
        waiting, size = np.arange(len(at)), 1.0
        for _ in range(_HALVINGS):
            cells, step = at[waiting], size * move[waiting]
            levels = self.levels[:, cells] + step[:, :2].T
            logs = self.logs[cells] + step[:, 2 : 2 + self.pairs]
            multipliers = self.multipliers[cells] + step[:, 2 + self.pairs :]
            inside = np.all(multipliers > 0, axis=1)
            kept = np.flatnonzero(inside)
            if len(kept):
                cells, levels = cells[kept], levels[:, kept]
                logs, multipliers = logs[kept], multipliers[kept]
                forms = self._forms(cells, logs, multipliers)
                merit, roots = self._merit(cells, levels, forms)
                merit -= np.where(self.used[cells], np.log(multipliers), 0.0).sum(axis=1)
                slack = 1e-4 * size * decrement[waiting[kept]] - 1e-9 * np.abs(self.merit[cells])
                good = merit <= self.merit[cells] - slack
                cells = cells[good]
                self.levels[:, cells], self.logs[cells] = levels[:, good], logs[good]
                self.multipliers[cells], self.merit[cells] = multipliers[good], merit[good]
                self.factors[:, cells] = np.linalg.inv(roots[:, good])
                inside[kept] = good
            waiting = waiting[~inside]
            if not len(waiting):
                return
            size /= 2
        # No step helps: rounding has the last word, and the cell is as good as done.
        self.open[at[waiting]] = False


def _table(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Every A_i, flat, shape (pairs, k²)."""
    halves = rows.reshape(2, -1, rows.shape[1]).swapaxes(0, 1)
    return np.asarray((halves.swapaxes(1, 2) @ halves).reshape(len(halves), -1))


def _roots(matrices: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cholesky factors of a stack; a NaN on the diagonal where there is none."""
    try:
        return np.asarray(np.linalg.cholesky(matrices))
    except np.linalg.LinAlgError:
        pass
    size = matrices.shape[-1]
    failed = np.eye(size)
    failed[0, 0] = np.nan
    out = np.empty_like(matrices)
    for place in np.ndindex(matrices.shape[:-2]):
        root, info = dpotrf(matrices[place].T, lower=1, clean=1)
        out[place] = failed if info else root
    return out
