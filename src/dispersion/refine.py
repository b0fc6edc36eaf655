"""Certified branching for rotated heads whose D-scaling bound is loose (theory T10, refined).

**Theorem.** Let queries lie in {L z : ‖z‖ ≤ 1}, and let f_0 … f_{K−1} be any vectors, f_K = −f_0.
The numbers f_0·z, …, f_K·z begin and end with opposite signs, so every z lies in a cell
(f_j·z)(f_{j+1}·z) ≤ 0. There, for all scales S that commute with the rotations and all λ ≥ 0,

    ‖S⁻¹L z‖² ≤ zᵀ(LᵀS⁻²L − λ sym(f_j f_{j+1}ᵀ)) z ≤ max(0, λ_max(LᵀS⁻²L − λ sym(f_j f_{j+1}ᵀ))),

and likewise for keys with S in place of S⁻¹. A cell may be cut again, on either side, with one more
λ for each cut. Logits of a cell are at most the product of its two norms, so the largest product
over all cells, each with scales and multipliers of its own, bounds every logit.

The proof asks nothing of the f's, the scales and the λ's but λ ≥ 0. Floats choose them here and in
barrier.py, in the span of a few leading directions. cells.py then proves the leaves: L Lᵀ ⪰ the
Gram matrix, a bound on what lies outside the leading directions, and every λ_max by Cholesky, with
all rounding errors. With biases all this holds for the ellipsoids that cover the two sides
(ellipsoid.cover).

The plain bound is loose where its optimum needs mixed states Σ p_k e_k e_kᵀ in place of a single
direction. Cells are wedges in the plane of e_1 and e_2, narrow enough to tell the directions
√p_1 e_1 ± √p_2 e_2 apart.

How far it gets: 40 low-rank heads (head_dim 128, rank 4 to 32, noise 0.05 to 0.3) whose plain
bounds were 2.7 to 6.6 % above what ascent finds (median 4.1 %) all came within 2 %, at a median
of 25 ms a head and at most 0.1 s. A head that needs more cells than NODES gets the bound reached
by then. Where the plain bound is near enough, nothing is branched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dispersion import barrier
from dispersion.cells import Cell, Cut, certified, wedges
from dispersion.leading import Frame, frame_at
from dispersion.reached import largest_logit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dispersion.ellipsoid import Ellipsoid

GOAL = 1.019
"""Ratio to the best logit found at which branching stops."""
NODES = 600
"""About how many cells branching may solve for one head of few leading directions."""

_UP = 1 + 2.0**-50
_SPAN = 32  # leading directions of each side in which scales and cells are solved
_GAP = 2e-3  # accuracy of the scales; cells stop at a few times that
_CHEAP = 64  # leading directions up to which all NODES are spent
_PARENTS = 8  # cells cut at a time
_WEDGES = 7  # and into how many each
_LAST = 4  # cells left that are cut even past the number allowed
_NEARLY = 1 + 2.0**-14  # times the goal: near enough, after all roundings
_TINIEST = 2.0**-100  # scales that change by more than this are not used
_NARROWEST, _WIDEST = math.radians(4), math.radians(26)


def rotated_norm(
    queries: Ellipsoid,
    keys: Ellipsoid,
    scales: NDArray[np.float64],
    pairs: NDArray[np.intp],
    tops: tuple[float | None, float | None] = (None, None),
) -> float:
    """Upper bound on max |⟨R q, R′ k⟩| over two ellipsoids and all rotations. **Upper.**

    Never above what `scales` alone certifies. Branching stops at GOAL times the best value that
    ascent finds, or after about NODES cells.

    Args:
        queries, keys: the ellipsoids in head space.
        scales: s of the D-scaling to start from, shape (head_dim,), equal within pairs.
        pairs: shape (head_dim/2, 2); together they name every coordinate.
        tops: numbers a little above the largest squares of queries over scales and of keys times
            scales, to save computing them.

    """
    used = _moving(queries)[pairs].any(axis=1) & _moving(keys)[pairs].any(axis=1)
    if not used.all():
        # A pair that is zero on one side adds nothing.
        kept = pairs[used].T.ravel()
        places = np.arange(len(kept)).reshape(2, -1).T
        parts = (_part(queries, kept), _part(keys, kept))
        return rotated_norm(*parts, scales[kept], places) if len(kept) else 0.0
    sides, order = (queries, keys), pairs.T.ravel()
    plain = plain_norm(queries, keys, scales, tops)
    try:
        # Nothing found in floats is trusted, so strange heads may do strange things there.
        with np.errstate(all="ignore"):
            goal = GOAL * largest_logit(sides, scales, order, plain / GOAL)
            if plain <= goal or not goal > 0:
                return plain
            frame = frame_at(sides, scales, order, _SPAN)
            if frame is None:
                return plain
            tree = _Tree(frame, goal / frame.value)
        if tree.root.value <= tree.goal:
            plain = min(plain, _tuned(sides, frame, tree.root))
        if plain <= goal:
            return plain
        with np.errstate(all="ignore"):
            # Where many directions matter, a cell costs more and helps less.
            seen = frame.vectors[0].shape[1]
            cells = tree.grow(int(NODES * min(1.0, (_CHEAP / seen) ** 2)))
            found = certified(*frame.covers(sides), cells, goal)
            best = tree.uncut() if found > goal * _NEARLY else None
        if best and found > best.value * frame.value:
            # What the leading directions miss cost more than the cells gained.
            plain = min(plain, _tuned(sides, frame, best))
        return min(plain, found)
    except np.linalg.LinAlgError:
        return plain


def _moving(ellipsoid: Ellipsoid) -> NDArray[np.bool_]:
    """The coordinates that are not zero in all of an ellipsoid."""
    moving = ellipsoid.sizes > 0
    return moving if ellipsoid.row_error is None else moving | (ellipsoid.row_error > 0)


def _part(ellipsoid: Ellipsoid, kept: NDArray[np.intp]) -> Ellipsoid:
    """An ellipsoid in some of its coordinates."""
    return replace(
        ellipsoid,
        gram=ellipsoid.gram[np.ix_(kept, kept)],
        sizes=ellipsoid.sizes[kept],
        row_error=None if ellipsoid.row_error is None else ellipsoid.row_error[kept],
    )


def plain_norm(
    queries: Ellipsoid,
    keys: Ellipsoid,
    scales: NDArray[np.float64],
    tops: tuple[float | None, float | None] = (None, None),
) -> float:
    """The bound of one D-scaling for both sides as they are. **Upper.**"""
    # scales · (1/scales) differs from 1 by one rounding, which _UP outweighs.
    first = queries.norm_upper(1 / scales, top=tops[0])
    return first * keys.norm_upper(scales, top=tops[1]) * _UP


def _tuned(sides: tuple[Ellipsoid, Ellipsoid], frame: Frame, node: _Node) -> float:
    """The plain bound at a node's scales; infinite where they are far off."""
    with np.errstate(all="ignore"):
        scales = frame.scales(node.logs)
    usable = np.all((scales > _TINIEST * frame.base) & (scales < frame.base / _TINIEST))
    return plain_norm(*sides, scales) if usable else math.inf


@dataclass(frozen=True, eq=False)
class _Node:
    """A cell in the frame and its solution."""

    value: float
    cuts: tuple[tuple[Cut, ...], tuple[Cut, ...]]
    logs: NDArray[np.float64]
    multipliers: tuple[NDArray[np.float64], NDArray[np.float64]]
    levels: NDArray[np.float64]
    states: NDArray[np.float64]


class _Tree:
    """The cells of a head, cut where the bound is largest."""

    def __init__(self, frame: Frame, goal: float) -> None:
        self.frame, self.goal = frame, goal
        self._whole = _Node(
            1.0,
            ((), ()),
            np.zeros(frame.rows[0].shape[0] // 2),
            (np.zeros(0), np.zeros(0)),
            np.ones(2),
            np.zeros((2, 0, 0)),
        )
        self.root = self._solved([self._whole], goal, sort_only=True)[0]

    def uncut(self) -> _Node:
        """The head as a whole, solved to the end."""
        return self._solved([self._whole], enough=0.0)[0]

    def grow(self, nodes: int) -> list[Cell]:
        """Cells that cover both sides."""
        waiting, solved = [self.root], 0
        done: list[_Node] = []
        # Where few cells are left, the end is near.
        while waiting and solved < (nodes if len(waiting) > _LAST else 2 * nodes):
            waiting.sort(key=lambda node: -node.value)
            count = min(_PARENTS, max(_LAST, (nodes - solved) // _WEDGES))
            parents, waiting = waiting[:count], waiting[count:]
            children = [child for parent in parents for child in self._split(parent)]
            solved += len(children)
            for child in self._solved(children, self.goal, sort_only=True):
                (done if child.value <= self.goal else waiting).append(child)
        return [self._cell(node) for node in [*waiting, *done]]

    def _split(self, node: _Node) -> list[_Node]:
        """Wedges in the plane of the two leading directions of the more mixed state."""
        spectra = [np.linalg.eigh(state) for state in node.states]
        side = 0 if spectra[0][0][-1] < spectra[1][0][-1] else 1
        shares, vectors = spectra[side]
        between = math.atan(math.sqrt(max(shares[-2], 0.0) / shares[-1]))
        step = min(max(0.7 * between, _NARROWEST), _WIDEST)
        angles = step * np.arange(4)
        angles = np.concatenate([angles, math.pi - angles[:0:-1]])
        few = np.outer(-np.sin(angles), vectors[:, -1]) + np.outer(np.cos(angles), vectors[:, -2])
        out = []
        for cut in wedges(few):
            cuts, multipliers = list(node.cuts), list(node.multipliers)
            cuts[side] = (*cuts[side], cut)
            multipliers[side] = np.append(multipliers[side], 0.0)
            out.append(
                replace(
                    node,
                    cuts=(cuts[0], cuts[1]),
                    multipliers=(multipliers[0], multipliers[1]),
                )
            )
        return out

    def _solved(
        self, nodes: Sequence[_Node], enough: float, *, sort_only: bool = False
    ) -> list[_Node]:
        """The nodes with the better of their own and their parent's solution."""
        size = self.frame.rows[0].shape[1]
        found = barrier.solve(
            self.frame.rows,
            (
                _stacked([n.cuts[0] for n in nodes], size),
                _stacked([n.cuts[1] for n in nodes], size),
            ),
            np.array([n.logs for n in nodes]),
            (
                _padded([n.multipliers[0] for n in nodes]),
                _padded([n.multipliers[1] for n in nodes]),
            ),
            enough=enough,
            sort_only=sort_only,
            gap=_GAP,
        )
        out = []
        for i, node in enumerate(nodes):
            node = replace(node, states=found.states[:, i])
            if found.value[i] < node.value or not enough:
                counts = [len(c) for c in node.cuts]
                multipliers = [m[i, :n] for m, n in zip(found.multipliers, counts, strict=True)]
                node = replace(
                    node,
                    value=float(found.value[i]),
                    logs=found.logs[i],
                    multipliers=(multipliers[0], multipliers[1]),
                    levels=found.levels[:, i],
                )
            out.append(node)
        return out

    def _cell(self, node: _Node) -> Cell:
        tops = self.frame.tops
        return Cell(
            node.cuts,
            np.exp(node.logs),
            (node.multipliers[0] * tops[0], node.multipliers[1] * tops[1]),
            (float(node.levels[0]) * tops[0], float(node.levels[1]) * tops[1]),
        )


def _padded(rows: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    out = np.zeros((len(rows), max(len(row) for row in rows)))
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def _stacked(cells: Sequence[tuple[Cut, ...]], size: int) -> barrier.Cuts:
    """Cuts of a batch of cells, padded with zeros."""
    shape = (len(cells), max(len(cuts) for cuts in cells), size)
    first, second = np.zeros(shape), np.zeros(shape)
    for i, cuts in enumerate(cells):
        for j, cut in enumerate(cuts):
            first[i, j], second[i, j] = cut.first, cut.second
    return barrier.Cuts(first, second)
