"""Newton's system of −log det(aI − M) − log det(bI − M′) for a batch of cells. For barrier.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_AT_ONCE = 8  # cells


def newton_system(
    rows: Sequence[NDArray[np.float32]],
    tables: Sequence[NDArray[np.float32]],
    cuts: Sequence[tuple[NDArray[np.float32], NDArray[np.float32]]],
    factors: NDArray[np.float32],
    logs: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Second and first derivatives in (a, b, t, λ of the query side, λ of the key side).

    In float32: an approximate step is as good as an exact one, and costs half.

    Args:
        rows: R of both sides, shape (2·pairs, k).
        tables: the A_i = R_iᵀR_i of both sides, flat, shape (pairs, k²).
        cuts: f and g of both sides' cuts, shape (cells, cuts, k).
        factors: E with EᵀE the inverse of aI − M, for both sides, shape (2, cells, k, k).
        logs: t, shape (cells, pairs).

    """
    count, pairs = logs.shape
    total = 2 + pairs + sum(first.shape[1] for first, _ in cuts)
    hessian = np.zeros((count, total, total), np.float32)
    gradient = np.zeros((count, total), np.float32)
    inner = slice(2, 2 + pairs)
    diagonal = np.arange(2, 2 + pairs)
    offset = 2 + pairs
    images: list[NDArray[np.float32]] = []
    for side, sign in ((0, 1.0), (1, -1.0)):
        factor = factors[side]
        back = np.swapaxes(factor, 1, 2)
        inverse = back @ factor
        square = inverse @ inverse
        weights = np.exp(sign * logs)
        image = factor @ rows[side].T
        image *= np.sqrt(np.concatenate([weights] * 2, axis=1))[:, None, :]
        gradient[:, side] = -np.einsum("cii->c", inverse)
        hessian[:, side, side] = np.einsum("cii->c", square)
        share = weights * (inverse.reshape(count, -1) @ tables[side].T)
        gradient[:, inner] += sign * share
        cross = -sign * weights * (square.reshape(count, -1) @ tables[side].T)
        hessian[:, side, inner] = hessian[:, inner, side] = cross
        images.append(image)
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
            slope = (first @ back) @ image
            slope *= (second @ back) @ image
            slope = -sign * (slope[:, :, :pairs] + slope[:, :, pairs:])
            hessian[:, own, inner] = slope
            hessian[:, inner, own] = np.swapaxes(slope, 1, 2)
            offset += number
    _add_pair_squares(hessian, inner, images)
    return hessian, gradient


def _add_pair_squares(
    hessian: NDArray[np.float32], inner: slice, images: list[NDArray[np.float32]]
) -> None:
    """Adds Σ over sides of ‖U_i U_jᵀ‖² for the two rows U_i of every pair i, for each cell.

    Args:
        hessian: shape (cells, n, n).
        inner: where the pairs are in it.
        images: Uᵀ for both sides, first rows of the pairs first, shape (cells, k, 2·pairs).

    """
    half = images[0].shape[2] // 2
    count = min(len(hessian), _AT_ONCE)
    firsts = np.empty((count, half, 2 * half), np.float32)
    seconds = np.empty((count, half, half), np.float32)
    # A few cells at a time, in memory that is there already, stay in cache.
    for start in range(0, len(hessian), _AT_ONCE):
        cells = slice(start, start + _AT_ONCE)
        part = hessian[cells, inner, inner]
        some, others = firsts[: len(part)], seconds[: len(part)]
        for image in images:
            rows = image[cells]
            turned = np.swapaxes(rows, 1, 2)
            np.matmul(turned[:, :half], rows, out=some)
            np.matmul(turned[:, half:], rows[:, :, half:], out=others)
            some *= some
            others *= others
            mixed = some[:, :, half:]
            others += mixed
            others += np.swapaxes(mixed, 1, 2)
            others += some[:, :, :half]
            part += others
