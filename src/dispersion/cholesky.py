"""Certified upper bounds on λ_max of symmetric float64 matrices, by Cholesky.

If floating-point Cholesky of a symmetric matrix B runs to completion, then the smallest
eigenvalue of B is at least −γ_{n+1}/(1−γ_{n+1})·tr(B), up to an underflow term (Rump, BIT 46,
2006). The constants below are doubled to cover kernels that multiply by reciprocals. Valid for
conventional summation in any order; not for Strassen or for reduced-precision products.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.linalg import LinAlgError
from scipy.linalg import eigh
from scipy.linalg.lapack import dpotrf

from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNIT_ROUNDOFF = 2.0**-53
_UP = 1 + 2.0**-50  # one factor outweighs the rounding of a handful of float operations
_ATTEMPTS = 60


def gamma(operations: int) -> float:
    """γ_k = k·u/(1 − k·u), an upper bound on the relative error of k roundings (float64)."""
    ku = operations * UNIT_ROUNDOFF
    return float(ku / (1 - ku) * _UP)


def completes(matrix: NDArray[np.float64]) -> bool:
    """Whether float64 Cholesky of the symmetric matrix (lower triangle) runs to completion.

    The matrix may be overwritten.
    """
    # The transpose has Fortran order, so that nothing is copied; its upper triangle is meant.
    _, info = dpotrf(matrix.T, lower=0, clean=0, overwrite_a=1)
    return bool(info == 0)


def eigenvalue_defect(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far below zero λ_min can lie when Cholesky of `matrix` ran to completion (upper).

    Of one matrix, or of each of a stack.
    """
    size = matrix.shape[-1]
    relative = gamma(2 * size + 8)
    trace = np.abs(np.einsum("...ii->...i", matrix)).sum(axis=-1) * _UP
    underflow = size * size * 2.0**-1060 * np.maximum(1.0, trace)
    return np.asarray((relative / (1 - relative) * trace + underflow) * _UP)


def lambda_max_upper(
    matrix: NDArray[np.float64], error: float = 0.0, *, guess: float | None = None
) -> float:
    """An upper bound on λ_max of every symmetric matrix within `error` of `matrix`. **Upper.**

    Proved by Cholesky, never by an eigenvalue routine: an estimate only chooses where to try.
    The excess over the true λ_max is about size · u · trace.

    Args:
        matrix: symmetric float64, shape (n, n); only the lower triangle counts.
        error: bound on the 2-norm distance to the matrix meant.
        guess: a number a little above λ_max, to save computing one; tried first.

    Raises:
        ArgumentError: the matrix is not square or not finite.

    Source: Rump 2006 (theory §5).

    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        msg = f"matrix must be square. Got shape {matrix.shape}."
        raise ArgumentError(msg)
    diagonal = np.diag(matrix)
    size = matrix.shape[0]
    top = float(np.max(np.abs(matrix)))
    if not math.isfinite(top):
        msg = "matrix must be finite. Got an infinite or NaN entry."
        raise ArgumentError(msg)
    if top == 0.0:
        return error
    # A power of two keeps everything near 1, so that underflow cannot matter.
    unit = 2.0 ** (math.frexp(top)[1] - 1)
    scaled = matrix / unit
    guessed = guess is not None and math.isfinite(guess)
    estimate = guess / unit if guess is not None and guessed else _largest(scaled)
    floor = float(np.max(diagonal)) / unit
    total = float(np.abs(diagonal).sum()) / unit
    step = 4 * gamma(2 * size + 8) * (size * abs(estimate) + total + 1.0)
    shift = max(estimate, floor) + step
    index = np.arange(size)
    for _ in range(_ATTEMPTS):
        trial = -scaled
        trial[index, index] = shift - scaled[index, index]
        if completes(trial):
            rounding = 2 * UNIT_ROUNDOFF * (abs(shift) + float(np.max(np.abs(diagonal))) / unit)
            bound = (shift + float(eigenvalue_defect(trial)) + rounding) * _UP
            # One float up: near the underflow threshold a relative margin rounds away.
            return math.nextafter((bound * unit + error) * _UP, math.inf)
        step *= 2
        shift = max(_largest(scaled) if guessed else shift, shift) + step
        guessed = False
    # The trace norm bounds λ_max of any symmetric matrix: always true, rarely tight.
    total = float(np.abs(scaled).sum()) * (1 + gamma(size * size + 8))
    return math.nextafter((total * unit + error) * _UP, math.inf)


def _largest(matrix: NDArray[np.float64]) -> float:
    """About the largest eigenvalue; the others are spared."""
    last = len(matrix) - 1
    try:
        found = eigh(matrix, eigvals_only=True, subset_by_index=[last, last], check_finite=False)
    except LinAlgError:
        # LAPACK can fail to tell one eigenvalue from the others of a multiple of the identity.
        found = eigh(matrix, eigvals_only=True, check_finite=False)[last:]
    return float(found[0])


def norm_upper(vector: NDArray[np.float64]) -> float:
    """An upper bound on the 2-norm of a float vector of any size and scale. **Upper.**"""
    top = float(np.max(np.abs(vector), initial=0.0))
    if top == 0.0 or not math.isfinite(top):
        return top
    unit = 2.0 ** (math.frexp(top)[1] - 1)
    scaled = vector / unit
    square = float(np.vdot(scaled, scaled)) + vector.size * 2.0**-1070
    return math.nextafter(math.sqrt(square) * (1 + gamma(vector.size + 8)) * unit, math.inf)


def is_positive_semidefinite(matrix: NDArray[np.float64], error: float) -> bool:
    """True only if every symmetric matrix within `error` of `matrix` is proved semidefinite."""
    return bool(are_positive_semidefinite(matrix[None], np.array([error]))[0])


def are_positive_semidefinite(
    matrices: NDArray[np.float64], errors: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """For each matrix of a stack, shape (m, n, n), what `is_positive_semidefinite` says of it."""
    trials = matrices.copy()
    diagonals = np.einsum("mii->mi", trials)  # a view
    largest = np.abs(diagonals).max(axis=1, initial=0.0)
    shifts = (errors + 2 * eigenvalue_defect(matrices)) * _UP
    diagonals -= shifts[:, None]
    diagonals -= (4 * UNIT_ROUNDOFF * (largest + shifts))[:, None]
    found = np.asarray(np.all(diagonals >= 0, axis=1))
    for i in np.flatnonzero(found):
        found[i] = completes(trials[i])
    return found
