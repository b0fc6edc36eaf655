"""The capacity of a flat spectrum, enclosed: T13′ on the sphere.

M(κ), the mean of e^(κ x) over the first coordinate of the unit sphere, takes the place of T13's
Gaussian integrals.
"""

from __future__ import annotations

from typing import Any

from flint import arb

from dispersion._arrays import check
from dispersion._enclosing import checked, count_of
from dispersion.balls import Number, in_precision, round_down, round_up
from dispersion.enclosure import Enclosure, Estimate

__all__ = ["flat_log_capacity", "flat_log_capacity_estimate"]


@in_precision
def flat_log_capacity(dimension: int, singular_value: Number) -> Enclosure:
    """The T13′ bound on log N when no singular value exceeds κ. **upper**.

    At most d = `dimension` singular values are not 0. With M(κ) = Γ(d/2)(2/κ)^(d/2−1) I_(d/2−1)(κ):

    - κ − log M(κ) where log M(κ) ≤ κ/2, which holds for κ ≤ d: the exact capacity of a flat
      spectrum as n → ∞. No finite context attains it, but regular polygons (d = 2) reach
      1/(1 + 2Σ_k I_kn(κ)/I_0(κ)) of it.
    - log M(s²/κ) beyond, at the root s of log M(s) = κ/2: proved, a little looser for κ up to
      about 2d (4d in few dimensions), and weaker than T13 for larger ones.

    Proof: in T13's last step take the uniform measure on a sphere of radius R = s/√κ. The
    logarithm of its potential, log M(R|x|) − (|x|² + R²)/2, rises and then falls with |x|, so it is
    least at 0 or at √κ, and N ≤ M(R²)·max(1, e^κ/M(R√κ)²).

    Raises:
        ArgumentError: dimension is not a whole number of at least 1, or the value is negative,
            infinite or nan.
    """
    d = count_of("dimension", dimension)
    low, high = checked("singular_values", singular_value)
    lower, upper = round_down(_flat(d, low, up=False)), round_up(_flat(d, high, up=True))
    upper = min(upper, high)
    return Enclosure(min(max(lower, 0.0), upper), upper)


@in_precision
def flat_log_capacity_estimate(dimension: int, singular_value: float) -> Estimate:
    """κ − log M(κ) for any κ: a conjecture where log M(κ) > κ/2, hence an estimate (T13′)."""
    d = count_of("dimension", dimension)
    check("singular_values", singular_value)
    return Estimate(float((arb(singular_value) - _log_mean(d, singular_value)).mid()))


def _flat(d: int, kappa: float, *, up: bool) -> Any:
    """The bound of `flat_log_capacity` at one κ, or a number next to it on the side asked for."""
    half = arb(kappa) / 2
    mean = _log_mean(d, kappa)
    if mean <= half:
        return arb(kappa) - mean
    if not mean > half:  # equal as far as the precision goes: the larger of the two is safe
        return mean.union(arb(kappa) - mean)
    below, above = _around_root(d, kappa, half)
    root = above if up else below
    return _log_mean(d, arb(root) ** 2 / arb(kappa))


def _around_root(d: int, kappa: float, half: arb) -> tuple[float, float]:
    """Two close numbers around the s with log M(s) = κ/2."""
    from scipy.optimize import brentq

    # log M is convex with a slope between 0 and 1, so its root for κ/2 lies in [κ/2, κ].
    below, above = kappa / 2, kappa
    near = brentq(lambda s: float(_log_mean(d, s) - half), below, above, rtol=2.0**-50)
    ends = near * (1 - 2.0**-48), near * (1 + 2.0**-48)
    if _log_mean(d, ends[0]) <= half <= _log_mean(d, ends[1]):
        below, above = ends
    while below < (middle := (below + above) / 2) < above:
        if _log_mean(d, middle) >= half:
            above = middle
        else:
            below = middle
    return below, above


def _log_mean(d: int, kappa: Any) -> Any:
    """The logarithm of the mean of e^(κ x) over the unit sphere's first coordinate."""
    if kappa == 0:
        return arb(0)
    if d == 1:
        return arb(kappa).cosh().log()
    half = arb(d) / 2
    x = arb(kappa)
    # The scaled Bessel function keeps e^κ out, which may be beyond any exponent.
    bessel = x.bessel_i(half - 1, scaled=True)
    return half.lgamma() + (half - 1) * (2 / x).log() + bessel.log() + x
