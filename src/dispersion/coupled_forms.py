"""M Mᵀ of a cell of coupled keys as a function of its shares, with slopes (floats only).

In the eigenbasis of Y Yᵀ the best combination of coupled_keys.py, but for the constant, multiplies
columns of F₀ and of C = G₀ Yᵀ by numbers. Columns of about the same eigenvalue get the same ones,
so that M Mᵀ is a sum of few matrices made once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dispersion.coupled_keys import Cell

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.coupled_keys import CoupledKeys

    Matrix = NDArray[np.float64]

_FEWEST = 1e-9  # least share
_START = (0.0, -4.0, 0.0, -2.0)  # logarithms of shares, up to a constant
_SPLIT = 0.4  # of an interval that begins at 0
_BINS = 48  # different eigenvalues of Y Yᵀ that are told apart
_SMALLEST = 1e-8  # of the largest of them: what is below is not told apart


@dataclass(frozen=True, eq=False)
class Point:
    """One cell at one choice of shares.

    Attributes:
        ends: m and w.
        shares: α, the last one missing where constants have none.
        first, crossed: for each bin, what multiplies F₀ and C in L.
        diagonal: H for each bin.

    """

    ends: tuple[float, float]
    shares: Matrix
    first: Matrix
    crossed: Matrix
    diagonal: Matrix


class Forms:
    """The cells of one head's keys, seen through a linear map.

    Args:
        keys: the keys.
        through: shape (head_dim, head_dim), which does not mix the two parts; None for the
            identity.
        centred: whether cells have their constant in M, and a share for it.

    """

    def __init__(
        self, keys: CoupledKeys, through: Matrix | None = None, *, centred: bool = True
    ) -> None:
        still, size = keys.plain.head_dim, keys.head_dim
        turned, bias = keys.states.turned, keys.states.latent.offset
        self._through = np.eye(size) if through is None else through
        squares, self._basis = keys.states.spectrum
        behind = self._through[still:, still:]
        self._first = self._through[:still, :still] @ (
            keys.plain.matrix @ self._basis * keys.plain.radius.upper
        )
        self._crossed = behind @ keys.states.crossed
        runs = _runs(squares)
        self._labels = np.repeat(np.arange(len(runs)), [len(run) for run in runs])
        self._squares = np.array([squares[run].mean() for run in runs])
        parts = [(self._first[:, run], self._crossed[:, run]) for run in runs]
        self._grams = (
            np.array([f @ f.T for f, _ in parts]),
            np.array([f @ c.T for f, c in parts]),
            np.array([c @ c.T for _, c in parts]),
        )
        self._still = still
        self._third = behind @ (turned.gram * turned.radius.upper**2) @ behind.T
        self._offset = np.zeros(size)
        if turned.offset is not None:
            self._offset[still:] = behind @ turned.offset
        line = np.zeros(len(squares)) if bias is None else self._basis.T @ bias
        self._lines = tuple(
            np.array([part[:, run] @ line[run] for run in runs])
            for part in (self._first, self._crossed)
        )
        self.start = np.array(_START[: 4 if keys.biased and centred else 3])
        self.energy = np.concatenate([(self._first**2).sum(axis=1), np.diag(self._third)])

    def at(self, ends: tuple[float, float], logs: Matrix) -> Point:
        """The cell (m, w) with shares whose logarithms these are, up to a constant."""
        middle, half_width = ends
        powers = np.exp(logs - logs.max())
        shares = np.maximum(powers / powers.sum(), _FEWEST)
        shares /= shares.sum()
        one, two, three = shares[:3]
        diagonal = middle**2 / one + half_width**2 / two + self._squares / three
        return Point(ends, shares, -middle / one / diagonal, 1 / three / diagonal, diagonal)

    def gram(self, point: Point) -> Matrix:
        """M Mᵀ."""
        weights = (self._terms(point) / point.shares[:3, None, None]).sum(axis=0)
        blocks = [np.tensordot(w, g, 1) for w, g in zip(weights, self._grams, strict=True)]
        blocks[2] += self._third / point.shares[2]
        total = np.block([[blocks[0], blocks[1]], [blocks[1].T, blocks[2]]])
        if len(point.shares) == 4:
            line = self.constant(point)
            total += np.outer(line, line) / point.shares[3]
        return np.asarray((total + total.T) / 2)

    def _terms(self, point: Point) -> Matrix:
        """What the first three terms of M Mᵀ have of F₀F₀ᵀ, F₀Cᵀ and C Cᵀ: shape (3, 3, bins)."""
        (middle, half_width), f, c = point.ends, point.first, point.crossed
        p, q = 1 + middle * f, middle * c
        product = np.array([f * f, f * c, c * c])
        third = self._squares * product
        third[1] -= f
        third[2] -= 2 * c
        return np.array([[p * p, p * q, q * q], half_width**2 * product, third])

    def slopes(self, weight: Matrix, point: Point) -> Matrix:
        """The slopes of tr(weight · M Mᵀ) in the logarithms of the shares; weight symmetric."""
        first, behind = slice(None, self._still), slice(self._still, None)
        blocks = (weight[first, first], 2 * weight[first, behind], weight[behind, behind])
        traces = [
            g.reshape(len(g), -1) @ w.ravel() for w, g in zip(blocks, self._grams, strict=True)
        ]
        inner = self._terms(point).reshape(3, -1) @ np.concatenate(traces)
        inner[2] += float(np.einsum("ij,ij->", blocks[2], self._third))
        by_share = np.zeros(len(point.shares))
        by_share[:3] = -inner / point.shares[:3] ** 2
        if len(point.shares) == 4:
            line = self.constant(point)
            moved = weight @ line
            by_share[3] = -float(line @ moved) / point.shares[3] ** 2
            by_share[:3] += self._constant_slopes(moved, point) * (2 / point.shares[3])
        return np.asarray(point.shares * (by_share - by_share @ point.shares))

    def constant(self, point: Point) -> Matrix:
        """O₀ − L b."""
        first, crossed = self._lines
        moved = np.concatenate([point.first @ first, point.crossed @ crossed])
        return np.asarray(self._offset - moved)

    def constant_slopes(self, weight: Matrix, point: Point) -> Matrix:
        """The slopes of weight · (o₀ − L b) in the logarithms of three shares."""
        by_share = self._constant_slopes(weight, point)
        return np.asarray(point.shares * (by_share - by_share @ point.shares))

    def _constant_slopes(self, weight: Matrix, point: Point) -> Matrix:
        middle, half_width = point.ends
        parts = weight[: self._still], weight[self._still :]
        first, crossed = (lines @ part for lines, part in zip(self._lines, parts, strict=True))
        moved = point.first * first + point.crossed * crossed
        slopes = [
            -middle * (first + middle * moved),
            -(half_width**2) * moved,
            crossed - self._squares * moved,
        ]
        sums = np.array([float((slope / point.diagonal).sum()) for slope in slopes])
        return np.asarray(sums / point.shares[:3] ** 2)

    def cell(self, point: Point) -> Cell:
        """The cell, in the coordinates of keys."""
        labels = self._labels
        mixed = np.concatenate(
            [self._first * point.first[labels], self._crossed * point.crossed[labels]]
        )
        combination = np.linalg.solve(self._through, mixed) @ self._basis.T
        shares = (*map(float, point.shares), *[0.0] * (4 - len(point.shares)))
        return Cell(*point.ends, combination, shares)


def apart(keys: CoupledKeys) -> Matrix:
    """F₀F₀ᵀ + G₀G₀ᵀ, the two parts by themselves."""
    still = keys.plain.head_dim
    out = np.zeros((keys.head_dim,) * 2)
    for part, ball in (
        (slice(None, still), keys.plain),
        (slice(still, None), keys.states.turned),
    ):
        out[part, part] = ball.gram * ball.radius.upper**2
    return out


def centred(lower: float, upper: float) -> tuple[float, float]:
    """M and w of an interval, w rounded up."""
    return (lower + upper) / 2, (upper - lower) / 2 + upper * 2.0**-40


def halves(lower: float, upper: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """An interval cut in two, on a logarithmic scale."""
    middle = math.sqrt(lower * upper) or _SPLIT * upper
    return (lower, middle), (middle, upper)


def _runs(squares: Matrix) -> list[NDArray[np.intp]]:
    """Indices of ascending eigenvalues, those of about the same size together."""
    if len(squares) <= _BINS:
        return [np.array([i]) for i in range(len(squares))]
    least = max(float(squares[-1]) * _SMALLEST, 1e-300)
    places = np.log(np.maximum(squares, least) / least)
    labels = np.ceil(places * (_BINS - 1) / max(float(places[-1] - places[0]), 1e-9))
    return np.split(np.arange(len(squares)), np.flatnonzero(np.diff(labels)) + 1)
