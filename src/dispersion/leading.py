"""A rotated head in the leading directions of its ellipsoids. Floats only; for refine.py."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.cells import Covered
    from dispersion.ellipsoid import Ellipsoid

_MATTERS = 0.15  # directions below this share of the largest squared norm are left out
_FEWEST = 8


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
    )
