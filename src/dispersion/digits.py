"""Gram matrices out of products of 8-bit integers, which every device multiplies exactly.

Scaled by a power of two to a largest entry in [½, 1) and rounded to multiples of 2⁻⁵⁴, a row is
X/2⁵⁴ with seven digits to the base 256 for every entry, X = Σ_p T_p·256^(6−p), all in −128..127.
With P_k = Σ_{p+q=k} T_p T_qᵀ, whose sums stay within 32 bits,

    M Mᵀ ≈ 2⁻¹²·(P_0 + P_1/256 + … + P_6/256⁶),

up to the powers of two. Integers have no summation order, no reduced precision and no fused
operations: whoever computes them gets these P_k, and the error of the sum is a matter of the
digits alone. For rows of w entries with 2-norms of at least m after scaling, relative to the
norms of both rows and in units of 2⁻⁵³ it is at most

    3.1·w/m²   for the products p + q > 6 that are left out (6·128²·w·256⁵, and smaller ones)
    √w/m       for X, whose entries are rounded by half a unit at most
    1 + w/m²/20   for the float64 sum of the P_k, each of which is an exact float

and √w ≥ m: together less than 8·w/m². For random rows w/m² is some 20 to 60, so that this is below
the bound w for a float64 product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dispersion.cholesky import UNIT_ROUNDOFF, gamma
from dispersion.head import Gram

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIGITS = 7
"""Digits of an entry, and levels P_k that are summed."""
MOST_COLUMNS = 2**14
"""Columns whose products of digits fit into 32 bits: 7·2¹⁴·128² < 2³¹."""

_BITS = 54
_HALVES = np.int64(0x80808080808080)  # 128 in every digit
_LARGEST, _SMALLEST = 2.0**400, 2.0**-400
_BLOCK = 2**15  # entries treated at once: they stay in the cache


@dataclass(frozen=True, eq=False)
class Digits:
    """The rows of a matrix in digits.

    Attributes:
        matrix: the matrix, shape (rows, width).
        planes: int8, shape (rows, width, 8), the least significant digit first; the last is 0.
        exponents: row i of the matrix is 2^exponents[i] times a row of largest entry in [½, 1).
        coefficient: entry (i, j) of `gram` is off by at most this times the norms of rows i and j.

    """

    matrix: NDArray[np.float64]
    planes: NDArray[np.int8]
    exponents: NDArray[np.intc]
    coefficient: float

    def gram(self, levels: NDArray[np.int64]) -> Gram:
        """The Gram matrix from P_0 … P_6, shape (7, rows, rows)."""
        found = levels[-1].astype(np.float64)
        for level in levels[-2::-1]:
            found = found * 2.0**-8 + level
        steps = np.ldexp(2.0**-6, self.exponents)
        # 16 roundings more, as `BallImage.coefficient` allows for.
        coefficient = (self.coefficient + gamma(16)) * (1 + 2 * self.coefficient)
        return Gram(self.matrix, found * steps[:, None] * steps, coefficient)


def digits_of(matrix: NDArray[np.float64]) -> Digits | None:
    """The digits of a float64 matrix; None where it is not finite or sizes are extreme.

    Rows of zeros are fine; others need a largest entry between 2^-400 and 2^400.
    """
    rows, width = matrix.shape
    planes = np.empty((rows, width, 8), dtype=np.int8)
    exponents = np.empty(rows, dtype=np.intc)
    least = np.inf
    step = max(1, _BLOCK // width)
    for first in range(0, rows, step):
        block = slice(first, min(rows, first + step))
        part = matrix[block]
        low, high = part.min(axis=1), part.max(axis=1)
        top = np.maximum(high, -low)
        used = top != 0
        if not np.all((top[used] >= _SMALLEST) & (top[used] <= _LARGEST)):  # nan is neither
            return None
        exponents[block] = np.frexp(top)[1]
        scaled = part * np.ldexp(1.0, _BITS - exponents[block])[:, None]
        squares = np.einsum("ij,ij->i", scaled, scaled)
        least = min(least, float(np.min(squares, where=used, initial=np.inf)))
        whole = np.rint(scaled, out=scaled).astype("<i8")
        # Adding 128 to every digit makes bytes of them; flipping the top bits takes it off again.
        whole += _HALVES
        whole ^= _HALVES
        planes[block] = whole.view(np.int8).reshape(-1, width, 8)
    norm = least * (1 - gamma(width + 8)) / 2.0 ** (2 * _BITS)  # m²
    return Digits(matrix, planes, exponents, 8 * UNIT_ROUNDOFF * width / norm * (1 + 2.0**-50))


def agree(planes: NDArray[np.int8], levels: NDArray[np.int64], signs: NDArray[np.float64]) -> bool:
    """Whether levels times a vector of signs is what the digits give, exactly.

    Wrong levels pass for about half of all vectors of signs or fewer.

    Args:
        planes: shape (rows, width, 8).
        levels: shape (7, rows, rows).
        signs: ±1, shape (rows,).

    """
    # Every number here is whole and below 2^53, so that floats are exact.
    parts = [planes[:, :, DIGITS - 1 - p].astype(np.float64) for p in range(DIGITS)]
    pulled = [signs @ part for part in parts]
    for k, level in enumerate(levels):
        wanted = sum(parts[p] @ pulled[k - p] for p in range(k + 1))
        if not np.array_equal(level.astype(np.float64) @ signs, wanted):
            return False
    return True
