"""A rotated head in the leading directions of its ellipsoids. Floats only; for refine.py."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dispersion.cells import Covered
from dispersion.ellipsoid import reordered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.ellipsoid import Ellipsoid

_MATTERS = 0.15  # directions below this share of the largest squared norm are left out
_FEWEST = 8
_MARGIN = 1 + 1e-6
_SEEN, _MOST = 0.01, 128  # below this, or past so many, out of sight of the certificates too


@dataclass(frozen=True, eq=False)
class Frame:
    """A head in the leading directions of both sides, each scaled to norm 1.

    Coordinates are ordered by pair: all first ones, then all second ones.
    """

    base: NDArray[np.float64]
    order: NDArray[np.intp]
    tops: tuple[float, float]
    vectors: tuple[NDArray[np.float64], NDArray[np.float64]]
    beyond: tuple[float | None, float | None]
    rows: tuple[NDArray[np.float64], NDArray[np.float64]]

    @property
    def value(self) -> float:
        """The plain bound, as floats see it."""
        return math.sqrt(self.tops[0]) * math.sqrt(self.tops[1])

    def scales(self, logs: NDArray[np.float64]) -> NDArray[np.float64]:
        """The scales that t stands for: e^t multiplies s⁻²."""
        out = self.base.copy()
        out[self.order] *= np.exp(-0.5 * np.tile(logs, 2))
        return out

    def covers(self, sides: tuple[Ellipsoid, Ellipsoid]) -> tuple[Covered, Covered]:
        """Both sides, scaled, in their leading directions."""
        return (
            Covered.by(sides[0], 1 / self.base, self.order, self.vectors[0], self.beyond[0]),
            Covered.by(sides[1], self.base, self.order, self.vectors[1], self.beyond[1]),
        )


def frame_at(
    sides: tuple[Ellipsoid, Ellipsoid],
    scales: NDArray[np.float64],
    order: NDArray[np.intp],
    most: int,
) -> Frame | None:
    """The frame at these scales; None where a side is zero or out of range."""
    spectra = []
    for ellipsoid, s in zip(sides, (1 / scales, scales), strict=True):
        scaled = reordered(s[:, None] * ellipsoid.gram * s, order)
        if not np.all(np.isfinite(scaled)) or not 2.0**-200 < np.trace(scaled) < 2.0**200:
            return None
        spectra.append(np.linalg.eigh(scaled))
    tops = tuple(float(values[-1]) for values, _ in spectra)
    span = max(int((values > _MATTERS * values[-1]).sum()) for values, _ in spectra)
    span = min(max(span, _FEWEST), most, len(order))
    seen = max(int((values > _SEEN * values[-1]).sum()) for values, _ in spectra)
    seen = max(span, min(seen, _MOST))
    rows = [v * np.sqrt(np.maximum(w / w[-1], 2.0**-40)) for w, v in spectra]
    return Frame(
        scales,
        order,
        (tops[0], tops[1]),
        (spectra[0][1][:, -seen:], spectra[1][1][:, -seen:]),
        (_beyond(spectra[0][0], seen), _beyond(spectra[1][0], seen)),
        (rows[0][:, -span:], rows[1][:, -span:]),
    )


def _beyond(values: NDArray[np.float64], seen: int) -> float | None:
    """A little more than the largest of the ascending eigenvalues but `seen`, if there are any."""
    rest = values[:-seen]
    return float(rest[-1]) * _MARGIN if len(rest) and rest[-1] > 0 else None
