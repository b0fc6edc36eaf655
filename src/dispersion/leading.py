"""A rotated head in the leading directions of its ellipsoids. Floats only; for refine.py."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dispersion.cells import Covered
    from dispersion.ellipsoid import Ellipsoid

_MATTERS = 0.15  # directions below this share of the largest squared norm are left out
_FEWEST = 8
_MIXED = 3  # leading directions whose mixtures ascent starts from
_RANDOM, _KEPT = 8, 8  # other starts, and how many go on in all directions
_ASCENT_STEPS = 20


@dataclass(frozen=True, eq=False)
class Frame:
    """A head in the leading directions of both sides, each scaled to norm 1.

    Coordinates are ordered by pair: all first ones, then all second ones.
    """

    base: NDArray[np.float64]
    order: NDArray[np.intp]
    tops: tuple[float, float]
    vectors: tuple[NDArray[np.float64], NDArray[np.float64]]
    rows: tuple[NDArray[np.float64], NDArray[np.float64]]
    everything: tuple[NDArray[np.float64], NDArray[np.float64]]

    @property
    def value(self) -> float:
        """The plain bound, as floats see it."""
        return math.sqrt(self.tops[0]) * math.sqrt(self.tops[1])

    def scales(self, logs: NDArray[np.float64]) -> NDArray[np.float64]:
        """The scales that t stands for: e^t multiplies s⁻²."""
        out = self.base.copy()
        out[self.order] *= np.exp(-0.5 * np.tile(logs, 2))
        return out

    def axes(self, covers: tuple[Covered, Covered]) -> list[NDArray[np.float64]]:
        """The leading directions as z, shape (head_dim, k): L z = S × direction × its length."""
        out = []
        for side, covered in enumerate(covers):
            scales = 1 / self.base if side == 0 else self.base
            image = (scales[:, None] * covered.root)[self.order]
            lengths = np.linalg.norm(self.rows[side], axis=0) * math.sqrt(self.tops[side])
            out.append(image.T @ self.vectors[side] / lengths)
        return out

    def ascent(self, states: NDArray[np.float64]) -> float:
        """The largest value that alternating ascent finds, as a share of `value`.

        It starts from mixtures of the directions of two states, shape (2, k, k), and from random
        ones, and goes on in all dimensions from the best points.
        """
        rng = np.random.default_rng(0)
        points = []
        for state in states:
            shares, vectors = np.linalg.eigh(state)
            count = min(_MIXED, len(shares))
            signs = np.array([(*s, 1.0) for s in product((1.0, -1.0), repeat=count - 1)])
            lengths = np.sqrt(np.maximum(shares[-count:], 1e-3))
            points.append((vectors[:, -count:] * lengths) @ signs.T)
        number = points[0].shape[1]
        size = len(states[0])
        mixed = (np.repeat(points[0], number, axis=1), np.tile(points[1], number))
        starts = [np.hstack([m, rng.standard_normal((size, _RANDOM))]) for m in mixed]
        images = [r @ s for r, s in zip(self.rows, starts, strict=True)]
        images, values = _ascended(self.rows, images)
        best = np.argsort(-values)[:_KEPT]
        _, values = _ascended(self.everything, [i[:, best] for i in images])
        return float(values.max())


def frame_at(
    sides: tuple[Ellipsoid, Ellipsoid],
    scales: NDArray[np.float64],
    order: NDArray[np.intp],
    most: int,
) -> Frame | None:
    """The frame at these scales; None where a side is zero or out of range."""
    spectra = []
    for ellipsoid, s in zip(sides, (1 / scales, scales), strict=True):
        scaled = (s[:, None] * ellipsoid.gram * s)[np.ix_(order, order)]
        if not np.all(np.isfinite(scaled)) or not 2.0**-500 < np.trace(scaled) < 2.0**500:
            return None
        spectra.append(np.linalg.eigh(scaled))
    tops = tuple(float(values[-1]) for values, _ in spectra)
    span = max(int((values > _MATTERS * values[-1]).sum()) for values, _ in spectra)
    span = min(max(span, _FEWEST), most, len(order))
    rows = [v * np.sqrt(np.maximum(w / w[-1], 2.0**-40)) for w, v in spectra]
    return Frame(
        scales,
        order,
        (tops[0], tops[1]),
        (spectra[0][1][:, -span:], spectra[1][1][:, -span:]),
        (rows[0][:, -span:], rows[1][:, -span:]),
        (rows[0], rows[1]),
    )


def _ascended(
    rows: tuple[NDArray[np.float64], NDArray[np.float64]], images: Sequence[NDArray[np.float64]]
) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
    """Queries and keys after alternating ascent, shape (head_dim, starts), and their values."""
    out, tiny = list(images), 1e-150
    for _ in range(_ASCENT_STEPS):
        for mine, other in ((0, 1), (1, 0)):
            weight = _sizes(out[other]) / np.maximum(_sizes(out[mine]), tiny)
            point = rows[mine].T @ (np.concatenate([weight, weight]) * out[mine])
            out[mine] = rows[mine] @ (point / np.maximum(np.linalg.norm(point, axis=0), tiny))
    return out, (_sizes(out[0]) * _sizes(out[1])).sum(axis=0)


def _sizes(image: NDArray[np.float64]) -> NDArray[np.float64]:
    half = len(image) // 2
    return np.hypot(image[:half], image[half:])
