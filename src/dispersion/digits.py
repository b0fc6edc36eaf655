"""Gram matrices out of products of 8-bit integers, which every device multiplies exactly.

Scaled by a power of two to a largest entry in [½, 1) and cut to multiples of 2⁻⁵⁴, a row is X/2⁵⁴
with seven digits to the base 256 for every entry, X = Σ_p T_p·256^(6−p), all in −128..127. With
P_k = Σ_{p+q=k} T_p T_qᵀ, whose sums stay within 32 bits,

    M Mᵀ ≈ 2⁻¹²·(P_0 + P_1/256 + … + P_6/256⁶),

up to the powers of two. Integers have no summation order, no reduced precision and no fused
operations: whoever computes them gets these P_k, and the error of the sum is a matter of the
digits alone. For rows of w entries with 2-norms of at least m after scaling, relative to the norms
of both rows and in units of 2⁻⁵³ it is at most

    3.1·w/m²      for the products p + q > 6 that are left out (6·128²·w·256⁵, and smaller ones)
    √w/m          for X, whose entries are cut by less than a unit
    1 + w/m²/20   for the float64 sum of the P_k, each of which is an exact float

and √w ≥ m: together less than 8·w/m². The diagonal tells m: it is off by less than 8·w such units.
For random rows w/m² is some 20 to 60, which for wide ones is below the w of a float64 product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.cholesky import UNIT_ROUNDOFF, gamma
from dispersion.head import Gram

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIGITS = 7
"""Digits of an entry, and levels P_k that are summed."""
MOST_COLUMNS = 2**14
"""Columns whose products of digits fit into 32 bits: 7·2¹⁴·128² < 2³¹."""

HALVES = np.int64(0x80808080808080)
"""128 in every digit."""
ZERO = -2000
"""The exponent of a row of zeros."""

_BITS = 54
_LARGEST = 400  # exponents beyond ± this are not taken


def gram_of(
    matrix: NDArray[np.float64], levels: NDArray[np.int64], exponents: NDArray[np.integer[Any]]
) -> Gram | None:
    """The Gram matrix from P_0 … P_6, with its error; None where sizes are extreme or not finite.

    Args:
        matrix: the matrix, shape (rows, width).
        levels: shape (7, rows, rows).
        exponents: as of `digits_of`.

    """
    used = exponents > ZERO
    if np.any(used & (np.abs(exponents) > _LARGEST)):
        return None
    width = matrix.shape[1]
    found = levels[-1].astype(np.float64)
    for level in levels[-2::-1]:
        found = found * 2.0**-8 + level
    found *= 2.0**-12
    least = float(np.min(np.diag(found), where=used, initial=np.inf))
    if not least > 0.2:  # a largest entry of ½ or more says so
        return None
    slip = 8 * UNIT_ROUNDOFF * width
    error = slip / (least - slip) * (1 + 2.0**-50)
    steps = np.where(used, np.ldexp(1.0, np.where(used, exponents, 0)), 0.0)
    # 16 roundings more, as `BallImage.coefficient` allows for.
    coefficient = (error + gamma(16)) * (1 + 2 * error)
    return Gram(matrix, found * steps[:, None] * steps, coefficient)


def digits_of(matrix: NDArray[np.float64]) -> tuple[NDArray[np.int8], NDArray[np.intc]]:
    """T_0 … T_6 of a matrix, shape (7, rows, width), and exponents, as devices find them.

    Row i is 2^exponents[i] times a row of largest entry in [½, 1); ZERO where all of it is zero.
    Sizes must be such as `gram_of` takes.
    """
    top = np.max(np.abs(matrix), axis=1)
    exponents = np.where(top > 0, np.frexp(top)[1], ZERO)
    scaled = matrix * np.ldexp(1.0, np.where(top > 0, _BITS - exponents, 0))[:, None]
    whole = np.trunc(scaled).astype("<i8")
    # Adding 128 to every digit makes bytes of them; flipping the top bits takes it off again.
    planes = ((whole + HALVES) ^ HALVES).view(np.int8).reshape(*matrix.shape, 8)
    return np.moveaxis(planes[:, :, DIGITS - 1 :: -1], -1, 0), exponents.astype(np.intc)


def agree(parts: NDArray[np.int8], levels: NDArray[np.int64], signs: NDArray[np.float64]) -> bool:
    """Whether levels times a vector of signs is what the digits give, exactly.

    Wrong levels pass for half of all vectors of signs at most.

    Args:
        parts: T_0 … T_6, shape (7, rows, width).
        levels: P_0 … P_6, shape (7, rows, rows).
        signs: ±1, shape (rows,).

    """
    # Every number here is whole and below 2^53, so that floats are exact.
    floats = [part.astype(np.float64) for part in parts]
    pulled = [signs @ part for part in floats]
    for k, level in enumerate(levels):
        wanted = sum(floats[p] @ pulled[k - p] for p in range(k + 1))
        if not np.array_equal(level.astype(np.float64) @ signs, wanted):
            return False
    return True
