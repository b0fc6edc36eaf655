"""Ceilings of gates behind a norm, which read its output (A.X K2).

Statement. Let y = √d·g ⊙ u with ‖u‖ ≤ 1, W of shape (m, d) and V of shape (d, m). Gate i is the
logistic function of x_i = Σ_r V_ir h(z_r), z = W y and h(z) = z/(1 + e^−z). With
ρ_r = √d·‖W_r ⊙ g‖, which is the largest |z_r|, x_i is at most both

    Σ_r max(V_ir h(ρ_r), V_ir m_r),  m_r the least of h on [−ρ_r, ρ_r],  and
    ½√d·‖(V_i W) ⊙ g‖ + Σ_r max(V_ir, 0)·(h(ρ_r) − ρ_r/2).

Proof. h rises above its one minimum, which lies at about −1.28, and is larger at ρ than at −ρ: its
range over [−ρ, ρ] is [m, h(ρ)], which is the first bound. h(z) − z/2 = ½z·tanh(z/2) is even, not
negative and rises with |z|; the sum of the halves is linear in u, which is the second.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dispersion.cholesky import gamma
from dispersion.embedding import norms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

_TURN, _LEAST = -1.27, -0.27847  # h falls up to about -1.2785, and is nowhere less than this
_UP = 1 + 2.0**-40


def gate_ceilings(gain: Vector, down: Vector, up: Vector) -> Vector:
    """The most that each gate can be, shape (d,), between 0 and 1. **Upper.**

    Args:
        gain: g, shape (d,).
        down: W, shape (m, d).
        up: V, shape (d, m).

    """
    root, few = math.sqrt(len(gain)), 16 * gamma(len(gain) + down.shape[0] + 16)
    # Widths rounded up; what h and products of them are off by is far below the factors.
    sizes = norms(down * gain) * root * (_UP + few)
    most = _swish(sizes)
    least = np.where(sizes < -_TURN, _swish(-sizes), _LEAST)
    least = np.minimum(least * _UP, 0.0)
    first = np.maximum(up * most * _UP, up * least).sum(axis=1)
    straight = norms((up @ down) * gain) * (root / 2)
    rounding = np.abs(up) @ sizes
    second = straight + np.maximum(up, 0.0) @ (most - sizes / 2)
    largest = np.minimum(first, second) + rounding * (2.0**-40 + few)
    with np.errstate(over="ignore"):
        found = _UP / (1 + np.exp(-largest))
    return np.asarray(np.clip(found, 2.0**-100, 1.0))


def gated_gain(gain: Vector, down: Vector, up: Vector) -> Vector:
    """A gain that covers that of the norm with its gates, no larger than without. **Upper.**

    Its moduli are numbers of float32 rounded up, so that products with stored weights stay exact.

    Args:
        gain, down, up: as in `gate_ceilings`.

    """
    sizes = np.abs(gain)
    with np.errstate(over="ignore"):
        narrow = (sizes * gate_ceilings(gain, down, up) * _UP).astype(np.float32)
    above = np.nextafter(narrow, np.float32(np.inf)).astype(np.float64)
    return np.asarray(np.copysign(np.minimum(above, sizes), gain))


def _swish(z: Vector) -> Vector:
    """H, where exponentials that overflow give its limit 0."""
    with np.errstate(over="ignore"):
        return np.asarray(z / (1 + np.exp(-z)))
