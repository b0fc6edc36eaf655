"""Exact answers about small matrices and heads: rationals, and mpmath where roots are needed."""

import mpmath as mp
import numpy as np
from flint import fmpq, fmpq_mat

DIGITS = 60


def rational(matrix):
    """A float array as an exact matrix of fractions (vectors become columns)."""
    matrix = np.asarray(matrix, dtype=float)
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    entries = [fmpq(*float(x).as_integer_ratio()) for x in matrix.ravel()]
    return fmpq_mat(*matrix.shape, entries)


def fraction(value):
    return fmpq(*float(value).as_integer_ratio())


def is_semidefinite(matrix):
    """Whether an exact symmetric matrix is positive semidefinite, by LDLᵀ. No rounding."""
    size = matrix.nrows()
    rows = [[matrix[i, j] for j in range(size)] for i in range(size)]
    for k in range(size):
        pivot = rows[k][k]
        if pivot < 0 or (pivot == 0 and any(rows[i][k] != 0 for i in range(k, size))):
            return False
        if pivot == 0:
            continue
        for i in range(k + 1, size):
            share = rows[i][k] / pivot
            if share != 0:
                for j in range(k + 1, size):
                    rows[i][j] -= share * rows[k][j]
    return True


def identity(size):
    return fmpq_mat(size, size, [fmpq(int(i == j)) for i in range(size) for j in range(size)])


def bounds_lambda(matrix, value):
    """Whether λ_max of an exact symmetric matrix is at most `value` (a fraction)."""
    return is_semidefinite(identity(matrix.nrows()) * value - matrix)


def bounds_norm(matrix, value):
    """Whether σ_max of an exact matrix is at most the float `value`: decided without rounding."""
    gram = (
        matrix * matrix.transpose()
        if matrix.nrows() < matrix.ncols()
        else (matrix.transpose() * matrix)
    )
    return bounds_lambda(gram, fraction(value) ** 2)


def exact_projector(width):
    ones = fmpq_mat(width, width, [fmpq(1, width)] * width**2)
    return identity(width) - ones


def within_rows(exact, stored, allowed):
    """Every row of the exact matrix is within its error of the stored one; no rounding."""
    gap = exact - rational(stored)
    allowed = np.zeros(stored.shape[0]) if allowed is None else allowed
    for i in range(gap.nrows()):
        square = sum((gap[i, j] ** 2 for j in range(gap.ncols())), fmpq(0))
        if square > fraction(allowed[i]) ** 2:
            return False
    return True


def to_mp(matrix):
    matrix = np.asarray(matrix, dtype=float)
    return mp.matrix(matrix.tolist() if matrix.ndim == 2 else [[x] for x in matrix.tolist()])


def largest_norm(matrix, offset):
    """Max ‖M u + m‖ over ‖u‖ ≤ 1 for mpmath matrices: the trust-region optimum.

    Returns a value that some u of norm at most 1 reaches (a lower bound to DIGITS digits), found
    from the secular equation Σ b_i²/(λ − λ_i)² = 1, b = Mᵀm in the eigenbasis of MᵀM.
    """
    with mp.workdps(DIGITS):
        size = matrix.cols
        values, vectors = mp.eigsy(matrix.T * matrix)
        push = vectors.T * (matrix.T * offset)
        top = max(values)
        tiny = mp.mpf(10) ** (-DIGITS + 15) * (1 + abs(top))

        def step(level):
            return [push[i] / (level - values[i]) for i in range(size)]

        low = top + tiny
        if mp.fsum(x * x for x in step(low)) <= 1:
            # The hard case: the rest of the norm goes along the top singular vector.
            z = step(low)
            best = max(range(size), key=lambda i: values[i])
            rest = mp.sqrt(1 - mp.fsum(x * x for x in z) + z[best] ** 2)
            z[best] = rest if z[best] >= 0 else -rest
        else:
            high = top + mp.norm(push) + tiny
            for _ in range(4 * DIGITS):
                middle = (low + high) / 2
                if mp.fsum(x * x for x in step(middle)) > 1:
                    low = middle
                else:
                    high = middle
            z = step(high)
        length = mp.sqrt(mp.fsum(x * x for x in z))
        u = vectors * mp.matrix([[x / max(length, 1)] for x in z])
        return mp.norm(matrix * u + offset)


def spread_truth(query, key):
    """2·max‖ρ_k Cᵀ(ρ_q A u + a)‖ at the lower ends of the radii (T9), reached to DIGITS digits."""
    with mp.workdps(DIGITS):
        keys = to_mp(key.matrix).T * mp.mpf(key.radius.lower)
        offset = np.zeros(query.head_dim) if query.offset is None else query.offset
        matrix = keys * to_mp(query.matrix) * mp.mpf(query.radius.lower)
        return 2 * largest_norm(matrix, keys * to_mp(offset))
