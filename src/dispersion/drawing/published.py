"""Published formulas that only figures need. Rounded; nothing here bounds anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def scale_invariant(
    distance: NDArray[np.float64], tau: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Factor a_t and shift m_t of scale-invariant attention at distances t ≥ 0, in tokens.

    a_t = √(2(log(t/τ+1) − log α + β/α)) and m_t = −a_t² + β/α with α = β = √e, for which a = 1 and
    m = 0 at t = 0. Anson, Wang, Aitchison 2025, https://arxiv.org/abs/2505.17083.
    """
    alpha = beta = np.exp(0.5)
    square = 2 * (np.log1p(distance / tau) - np.log(alpha) + beta / alpha)
    return np.sqrt(square), -square + beta / alpha


def gaussian_weight(factor: NDArray[np.float64], shift: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of e^(factor·z + shift) over a standard Gaussian logit z: e^(shift + factor²/2)."""
    return np.exp(shift + factor**2 / 2)


def collapsed_product(rho: float, gamma: NDArray[np.float64]) -> NDArray[np.float64]:
    """Inner product of two tokens after one attention layer, as n → ∞ (K = Q = V = identity).

    Unit tokens have pairwise inner product ρ and logits are multiplied by γ log n. Tokens collapse
    to 1 below γ = 1/(1−ρ), keep ρ above, and have 4ρ/(1+3ρ) there. Chen, Lin, Polyanskiy,
    Rigollet 2025, https://arxiv.org/abs/2510.05554.
    """
    critical = 1 / (1 - rho)
    at = np.where(gamma == critical, 4 * rho / (1 + 3 * rho), rho)
    return np.where(gamma < critical, 1.0, at)
