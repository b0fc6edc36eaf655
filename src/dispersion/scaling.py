"""D-scaling for rotated heads (theory T10): the scales that make the certified bound smallest.

For any scales that commute with the rotations,  sup|l| ≤ ‖S⁻¹Â‖·‖SĈ‖. The logarithm of the right
side is convex in log S. It is minimised here in floats through smooth stand-ins for λ_max: with
M symmetric, λ_max ≤ (tr Mᵖ)^{1/p}, p = 2^k + 1, whose value and gradient cost k squarings.
Nothing here is part of a proof: every result is a valid choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# (k of p = 2^k + 1, L-BFGS iterations): a rough p first, from which a sharp one starts well.
_STAGES = ((3, 8), (5, 8), (7, 12))
_FINE_STAGES = ((3, 20), (5, 30), (7, 40), (9, 60), (11, 80))
# (k, step) of the damped steps for a caller that goes on from rough scales.
_STEPS = ((4, 0.08), (5, 0.04), (6, 0.02))
# Directions of an estimate of λ_max, steps of their power iteration, and what it may fall short by.
_LEADING, _REPEATS, _MARGIN = 16, 6, 1 + 2.0**-13
_LONGEST = 2.0  # the largest change of a log scale in one step
SMALL = 48  # head_dim up to which the fine stages in float64 cost next to nothing
_RIDGE = 1e-9


@dataclass(frozen=True, eq=False)
class Scaling:
    """Scales per coordinate (equal within a rotated pair) and the covers' shares.

    Attributes:
        scales: shape (head_dim,), the s of S = diag(s): queries are divided, keys multiplied.
        query_weight, key_weight: w of the two covers (ellipsoid.cover).
        tops: about the largest eigenvalues of the two scaled covers, where they came cheaply.

    """

    scales: NDArray[np.float64]
    query_weight: float
    key_weight: float
    tops: tuple[float | None, float | None] = (None, None)


def minimise(
    query: NDArray[np.float64],
    key: NDArray[np.float64],
    query_offset: NDArray[np.float64] | None,
    key_offset: NDArray[np.float64] | None,
    groups: NDArray[np.intp],
    *,
    rough: bool = False,
) -> Scaling:
    """Scales and shares that nearly minimise λ_max(S⁻¹ F_q S⁻¹)·λ_max(S F_k S).

    F = gram/w + offset offsetᵀ/(1−w) on each side.

    Args:
        query, key: Gram matrices, radius included, shape (head_dim, head_dim).
        query_offset, key_offset: shape (head_dim,), or None.
        groups: shape (head_dim,), labels 0..G−1; coordinates of one label share a scale.
        rough: whether large heads stop about one per cent short, for a caller that goes on
            (refine.py).

    """
    count = int(groups.max()) + 1
    precise = len(groups) <= SMALL
    dtype = np.float64 if precise else np.float32
    sides = [Side(g, o, dtype) for g, o in ((query, query_offset), (key, key_offset))]
    # Rounding may leave a diagonal of a changed basis below 0.
    energy = [
        np.maximum(np.bincount(groups, weights=side.diagonal), _RIDGE / len(groups))
        for side in sides
    ]
    start = 0.25 * np.log(energy[0] / energy[1])
    if rough and not precise:
        return _walked(sides, start, groups)
    from scipy.optimize import minimize

    point = np.concatenate([start, *[np.zeros(1) for side in sides if side.offset is not None]])

    def objective(x: NDArray[np.float64], power: int) -> tuple[float, NDArray[np.float64]]:
        scales = np.exp(x[:count])[groups]
        value, gradient, rest = 0.0, np.zeros_like(x), count
        for side, sign in zip(sides, (-1.0, 1.0), strict=True):
            share = float(_sigmoid(x[rest])) if side.offset is not None else 1.0
            part, shares, slope = side.smooth_norm(scales**sign, share, power)
            value += part
            gradient[:count] += sign * np.bincount(groups, weights=shares, minlength=count)
            if side.offset is not None:
                gradient[rest] = 0.5 * slope * share * (1 - share)
                rest += 1
        return value, gradient

    for power, iterations in _FINE_STAGES if precise else _STAGES:
        found = minimize(
            objective,
            point,
            args=(power,),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": iterations, "maxcor": 20},
        )
        point = found.x
    shares = [1.0, 1.0]
    rest = count
    for i, side in enumerate(sides):
        if side.offset is not None:
            shares[i] = float(_sigmoid(point[rest]))
            rest += 1
    return Scaling(np.exp(point[:count])[groups], shares[0], shares[1])


def _walked(sides: list[Side], logs: NDArray[np.float64], groups: NDArray[np.intp]) -> Scaling:
    """A few damped steps to where every group has the same share of both norms' gradients.

    Gradients are shares of a trace, so the logarithm of their ratio is a step of natural size,
    which the sharpness of the p-trace norm divides. An offset's share is right where it equals the
    offset's part of the trace.
    """
    weights = [1.0 if side.offset is None else 0.5 for side in sides]
    tiny = np.finfo(np.float32).tiny
    for power, step in _STEPS:
        scales = np.exp(logs)[groups]
        shares = []
        for i, (side, s) in enumerate(zip(sides, (1 / scales, scales), strict=True)):
            _, row, slope = side.smooth_norm(s, weights[i], power)
            shares.append(np.maximum(np.bincount(groups, weights=row), tiny))
            if side.offset is not None:
                part = weights[i] - slope * weights[i] * (1 - weights[i])
                part = min(max(part, 1e-6), 1 - 1e-6)
                goal = _logit(part) - _logit(weights[i])
                weights[i] = _sigmoid(_logit(weights[i]) + 2 * step * goal)
        move = step * np.log(shares[0] / shares[1])
        logs = logs + np.clip(move, -_LONGEST, _LONGEST)
    scales = np.exp(logs)[groups]
    tops = [side.top(s) for side, s in zip(sides, (1 / scales, scales), strict=True)]
    return Scaling(scales, weights[0], weights[1], (tops[0], tops[1]))


class Side:
    """One side's Gram matrix in working precision, normalised to trace 1."""

    def __init__(
        self, gram: NDArray[np.float64], offset: NDArray[np.float64] | None, dtype: type[Any]
    ) -> None:
        # Rounding may leave the trace of a changed basis below 0.
        size = max(float(np.trace(gram)), 0.0)
        size += 0.0 if offset is None else float(offset @ offset)
        self.size = size = size or 1.0
        self.high: NDArray[Any] | None = None
        ridge = _RIDGE / len(gram)
        self.gram = (gram / size + ridge * np.eye(len(gram))).astype(dtype)
        used = offset is not None and bool(np.any(offset))
        self.offset = (
            (offset / np.sqrt(size)).astype(dtype) if used and offset is not None else None
        )
        self.diagonal = np.diag(self.gram).astype(np.float64)
        if self.offset is not None:
            self.diagonal = self.diagonal + self.offset.astype(np.float64) ** 2

    def smooth_norm(
        self, scales: NDArray[np.float64], share: float, power: int
    ) -> tuple[float, NDArray[np.float64], float]:
        """½ log of the p-trace norm, its gradient in log scales, and its slope in the share."""
        s = scales.astype(self.gram.dtype)
        scaled = s[:, None] * self.gram * s
        matrix = scaled
        line = None
        if self.offset is not None:
            line = s * self.offset
            matrix = scaled / share + np.outer(line, line) / (1 - share)
        found = trace_norm(matrix, power)
        self.high = found.high
        slope = 0.0
        if line is not None:
            high = found.high
            inner = float(line @ high @ line)
            trend = -float(np.einsum("ij,ij->", high, scaled)) / share**2 + inner / (1 - share) ** 2
            slope = 2 * found.weight * trend
        return found.value, found.row, slope

    def top(self, scales: NDArray[np.float64]) -> float | None:
        """A little more than λ_max of the scaled Gram matrix, most of the time; no offset.

        The leading directions at the scales of the last call hold those at scales near them.
        """
        if self.high is None or self.offset is not None:
            return None
        s = scales.astype(self.gram.dtype)
        matrix = s[:, None] * self.gram * s
        unit = float(np.trace(matrix))
        matrix = matrix / unit
        space = self.high[:, np.argsort(-np.diag(self.high))[:_LEADING]]
        for _ in range(_REPEATS):
            space = matrix @ space
        basis, _ = np.linalg.qr(space)
        largest = np.linalg.eigvalsh(basis.T @ matrix @ basis)[-1]
        return float(largest) * unit * self.size * _MARGIN


@dataclass(frozen=True, eq=False)
class TraceNorm:
    """½ log (tr Mᵖ)^{1/p} of a symmetric matrix and what its slopes are made of.

    Attributes:
        value: ½ log (tr Mᵖ)^{1/p}, at least ½ log λ_max.
        row: shape (n,), its gradient in the logarithms of scales s of s M s; adds up to 1.
        high, weight: weight · high is its gradient in M.

    """

    value: float
    row: NDArray[np.float64]
    high: NDArray[Any]
    weight: float


def trace_norm(matrix: NDArray[Any], power: int) -> TraceNorm:
    """The smooth stand-in for ½ log λ_max with p = 2^power + 1."""
    unit = float(np.trace(matrix))
    matrix = matrix / unit
    high = matrix
    log = 0.0
    for _ in range(power):
        high = high @ high
        trace = float(np.trace(high))
        high = high / trace
        log = 2 * log + np.log(trace)
    row = np.einsum("ij,ij->i", high, matrix).astype(np.float64)
    total = float(row.sum())
    value = 0.5 * (np.log(unit) + (log + np.log(total)) / (2**power + 1))
    return TraceNorm(float(value), row / total, high, 0.5 / (unit * total))


def _sigmoid(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))


def _logit(x: float) -> float:
    return float(np.log(x) - np.log1p(-x))


def balance(
    query: NDArray[np.float64], key: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """T and T⁻ᵀ (approximately) with T query Tᵀ = T⁻ᵀ key T⁻¹ diagonal.

    For coordinates that no position turns, S may be any positive definite block; this one is
    optimal when all coordinates are unrotated.
    """
    size = len(query)
    eye = np.eye(size)
    root = np.linalg.cholesky(query + 1e-10 * (float(np.trace(query)) / size + 1e-300) * eye)
    middle = root.T @ (key + 1e-10 * (float(np.trace(key)) / size + 1e-300) * eye) @ root
    values, vectors = np.linalg.eigh((middle + middle.T) / 2)
    quarter = np.maximum(values, 1e-300) ** 0.25
    forward = (quarter[:, None] * vectors.T) @ np.linalg.inv(root)
    backward = (vectors / quarter).T @ root.T
    return forward, backward
