"""Keys of padding: what a projection makes of a state of zeros, which no norm has seen.

Statement. Let p be a point, ρMu₀ with ‖u₀‖ < 1 a point of the image of a ball under ρM, and c their
difference. The image under [ρM, c/√(1 − ‖u₀‖²)] holds the image under ρM and ±p.

Proof. For every q, with x = ‖ρMᵀq‖ and y = |⟨q, c⟩|, Cauchy–Schwarz gives
⟨q, p⟩ ≤ x‖u₀‖ + y ≤ √(x² + y²/(1 − ‖u₀‖²)), the largest ⟨q, ·⟩ of the larger image.

Behind a LayerNorm with gain g and bias β the zero state lies at −β from the centre, so that
u₀ = −β/(g√width) without its mean leaves next to nothing to add where β is small against g.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dispersion.cholesky import gamma

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.head import BallImage

    Vector = NDArray[np.float64]

_MOST = 0.9  # of ‖u₀‖, which must stay below 1
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of u₀, of which the one with the smallest column is taken
_UP = 1 + 2.0**-40


def with_zero_state(ball: BallImage, weight: Vector, gain: Vector, norm_bias: Vector) -> BallImage:
    """The image enlarged to hold what the projection makes of a state of zeros. **Upper.**

    Args:
        ball: `projection_ball` of this projection behind a LayerNorm.
        weight: the head's rows, shape (head_dim, width).
        gain, norm_bias: of the norm, shape (width,).
    """
    root = math.sqrt(len(gain))
    inside = -norm_bias * gain / (gain**2 + 0.01 * np.mean(gain**2) + 2.0**-500) / root
    inside -= inside.mean()
    inside *= min(1.0, _MOST / max(float(np.linalg.norm(inside)), _MOST))
    found = (_column(weight, gain, norm_bias, share * inside) for share in _SHARES)
    column, error = min(found, key=lambda each: float(np.linalg.norm(each[0])))
    if ball.row_error is not None:
        error = error + ball.row_error
    return replace(
        ball,
        matrix=np.column_stack([ball.matrix, column]),
        row_error=error * _UP,
        given=None,
    )


def _column(
    weight: Vector, gain: Vector, norm_bias: Vector, inside: Vector
) -> tuple[Vector, Vector]:
    """c/√(1 − ‖u₀‖²) over ρ = √width for u₀ = `inside`, and how far each entry may be off."""
    width = len(gain)
    root = math.sqrt(width)
    left = -norm_bias - root * (gain * (inside - inside.mean()))
    parts = np.abs(norm_bias) + root * np.abs(gain) * (np.abs(inside) + np.abs(inside).mean())
    off = gamma(width + 8) * _UP * parts
    error = np.abs(weight) @ (off + gamma(width + 4) * np.abs(left)) * _UP
    square = float(inside @ inside) * _UP
    factor = _UP / (root * math.sqrt(1 - square))
    return (weight @ left) * factor, error * (factor * _UP)
