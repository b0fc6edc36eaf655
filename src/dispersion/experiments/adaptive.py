"""Adaptive temperature: an inverse temperature that follows a row's entropy, and its fit.

The published rule (Veličković et al. 2024, https://arxiv.org/abs/2410.01104) multiplies the logits
of a row by a polynomial of degree 4 in its entropy, only where that entropy exceeds ½ nat and only
if the polynomial exceeds 1. The coefficients and the rule are those of the authors' JAX snippet as
two independent copies have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

PUBLISHED = (-0.037, 0.481, -2.3, 4.917, -1.791)
"""Coefficients of the published polynomial, highest power first; entropy in nats."""

LEAST_ENTROPY = 0.5
"""Rows at or below this entropy, in nats, are left as they are."""

_DEGREE = 4


def inverse_temperature(
    entropy: NDArray[np.float64], coefficients: tuple[float, ...] = PUBLISHED
) -> NDArray[np.float64]:
    """The factor on each row's logits: max(1, polynomial) above `LEAST_ENTROPY`, else 1.

    Args:
        entropy: of rows before the correction, in nats, any shape.
        coefficients: of the polynomial, highest power first.

    Raises:
        ArgumentError: an entropy is negative or nan.
    """
    entropy = np.asarray(entropy, dtype=np.float64)
    if not np.all(entropy >= 0):
        msg = f"entropy must be 0 or more, in nats. Got {np.min(entropy)}."
        raise ArgumentError(msg)
    sharper = np.maximum(np.polyval(coefficients, entropy), 1.0)
    return np.where(entropy > LEAST_ENTROPY, sharper, 1.0)


def window(coefficients: tuple[float, ...] = PUBLISHED) -> tuple[float, float]:
    """The entropies in nats between which the polynomial last exceeds 1.

    Outside of it nothing is sharpened: a nearly uniform row of more than exp(upper end) items
    keeps its coefficients.

    Raises:
        ArgumentError: the polynomial nowhere falls through 1, or does not rise through it before.
    """
    shifted = np.array(coefficients, dtype=np.float64)
    shifted[-1] -= 1.0
    roots = np.roots(shifted)
    real = np.sort(roots[np.abs(roots.imag) < 1e-9 * np.maximum(1.0, np.abs(roots))].real)
    falls = real[np.polyval(np.polyder(shifted), real) < 0]
    if falls.size:
        upper = float(falls[-1])
        rises = real[(real < upper) & (np.polyval(np.polyder(shifted), real) > 0)]
        if rises.size:
            return max(LEAST_ENTROPY, float(rises[-1])), upper
    msg = (
        "coefficients must be of a polynomial that rises, then falls through 1. "
        f"Got {coefficients}."
    )
    raise ArgumentError(msg)


def fit(
    entropies: NDArray[np.float64], inverse_temperatures: NDArray[np.float64]
) -> tuple[float, ...]:
    """Coefficients of degree 4, highest power first, by least squares.

    Raises:
        ArgumentError: the two differ in shape or hold fewer than 5 different entropies.
    """
    if entropies.shape != inverse_temperatures.shape or np.unique(entropies).size <= _DEGREE:
        msg = (
            "entropies and inverse_temperatures must pair up, with 5 different entropies or more. "
            f"Got shapes {entropies.shape} and {inverse_temperatures.shape}."
        )
        raise ArgumentError(msg)
    return tuple(float(c) for c in np.polyfit(entropies, inverse_temperatures, _DEGREE))
