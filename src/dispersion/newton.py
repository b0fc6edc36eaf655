"""Newton's system of −log det(aI − M) − log det(bI − M′) for a batch of cells. For barrier.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def newton_system(
    rows: Sequence[NDArray[np.float64]],
    tables: Sequence[NDArray[np.float64]],
    cuts: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
    factors: NDArray[np.float64],
    logs: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Second and first derivatives in (a, b, t, λ of the query side, λ of the key side).

    Args:
        rows: R of both sides, shape (2·pairs, k).
        tables: the A_i = R_iᵀR_i of both sides, flat, shape (pairs, k²).
        cuts: f and g of both sides' cuts, shape (cells, cuts, k).
        factors: E with EᵀE the inverse of aI − M, for both sides, shape (2, cells, k, k).
        logs: t, shape (cells, pairs).

    """
    count, pairs = logs.shape
    total = 2 + pairs + sum(first.shape[1] for first, _ in cuts)
    hessian = np.zeros((count, total, total))
    gradient = np.zeros((count, total))
    inner = slice(2, 2 + pairs)
    diagonal = np.arange(2, 2 + pairs)
    offset = 2 + pairs
    pulls: list[NDArray[np.float64]] = []
    for side, sign in ((0, 1.0), (1, -1.0)):
        factor = factors[side]
        back = np.swapaxes(factor, 1, 2)
        inverse = back @ factor
        square = inverse @ inverse
        weights = np.exp(sign * logs)
        pulled = rows[side] @ back
        pulled *= np.sqrt(np.concatenate([weights] * 2, axis=1))[:, :, None]
        gradient[:, side] = -np.einsum("cii->c", inverse)
        hessian[:, side, side] = np.einsum("cii->c", square)
        share = weights * (inverse.reshape(count, -1) @ tables[side].T)
        gradient[:, inner] += sign * share
        cross = -sign * weights * (square.reshape(count, -1) @ tables[side].T)
        hessian[:, side, inner] = hessian[:, inner, side] = cross
        pulls.append(pulled)
        hessian[:, diagonal, diagonal] += share
        first, second = cuts[side]
        number = first.shape[1]
        if number:
            own = slice(offset, offset + number)
            left, right = first @ inverse, second @ inverse
            flipped = np.swapaxes(second, 1, 2)
            mixed = left @ flipped
            gradient[:, own] = -np.einsum("cjj->cj", mixed)
            # tr(Z F_i Z F_j) for F = sym(f gᵀ).
            straight = left @ np.swapaxes(first, 1, 2)
            hessian[:, own, own] = 0.5 * (
                straight * (right @ flipped) + mixed * np.swapaxes(mixed, 1, 2)
            )
            touch = np.einsum("cjk,cjk->cj", left, right)
            hessian[:, side, own] = hessian[:, own, side] = touch
            slope = pulled @ (factor @ np.swapaxes(first, 1, 2))
            slope *= pulled @ (factor @ flipped)
            slope = -sign * (slope[:, :pairs] + slope[:, pairs:])
            hessian[:, inner, own] = slope
            hessian[:, own, inner] = np.swapaxes(slope, 1, 2)
            offset += number
    for cell in range(count):
        # One cell at a time stays in cache.
        hessian[cell, inner, inner] += _pair_squares([pull[cell] for pull in pulls])
    return hessian, gradient


def _pair_squares(pulls: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Σ over sides of ‖U_i U_jᵀ‖² for the two rows U_i of every pair i."""
    half = len(pulls[0]) // 2
    straight, crossed = np.zeros((half, half)), np.zeros((half, half))
    for pull in pulls:
        first, second = pull[:half], pull[half:]
        for left, right, total in (
            (first, first, straight),
            (second, second, straight),
            (first, second, crossed),
        ):
            squares = left @ right.T
            squares *= squares
            total += squares
    straight += crossed
    straight += crossed.T
    return straight
