"""The formulas of `capacity` and `rigor_capacity` as SymPy expressions; see `symbolic`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sympy as sp

if TYPE_CHECKING:
    from collections.abc import Sequence


def simplex_ceiling(n: Any, singular_value: Any) -> sp.Expr:
    """1/(1+(n−1)e^(−κ n/(n−1))), for n ≥ 2 (T12)."""
    return 1 / (1 + (n - 1) * sp.exp(-singular_value * n / (n - 1)))


def steep_ceiling(n: Any, second: Any, first: Any = sp.oo) -> sp.Expr:
    """1/(1+(⌈n/2⌉−1)e^(−2κ_2)+⌊n/2⌋e^(−2κ_1)) (T13″)."""
    near = sp.ceiling(sp.sympify(n) / 2) - 1
    far = sp.floor(sp.sympify(n) / 2)
    return 1 / (1 + near * sp.exp(-2 * second) + far * sp.exp(-2 * first))


def log_capacity_at(t: Any, singular_values: Sequence[Any]) -> sp.Expr:
    """What T13 minimises, t + ½ Σ log((κ/t)²/(2κ/t−1)); every κ given must exceed t."""
    terms = (sp.log((k / t) ** 2 / (2 * k / t - 1)) for k in singular_values)
    return t + sp.Rational(1, 2) * sum(terms)


def water_pull(t: Any, singular_values: Sequence[Any]) -> sp.Expr:
    """Σ (κ−t)/(2κ−t), which equals t at the minimiser of T13; every κ given must exceed t."""
    return sum((k - t) / (2 * k - t) for k in singular_values)


def log_capacity(singular_values: Sequence[Any]) -> sp.Expr:
    """The minimum over t of T13 for numbers κ, to 80 digits."""
    kappa = sorted((sp.sympify(k) for k in singular_values if k > 0), reverse=True)
    if not kappa:
        return sp.Integer(0)
    t = sp.Symbol("t", positive=True)
    for count in range(1, len(kappa) + 1):
        above, below = kappa[:count], kappa[count] if count < len(kappa) else 0
        # t − pull grows with t: it changes sign between one κ and the next, or not at all.
        if below and below - water_pull(below, above) >= 0:
            continue
        balance = sp.lambdify(t, t - water_pull(t, above), "mpmath")
        level = _root(balance, below, above[-1])
        return log_capacity_at(level, above)
    msg = "the water level lies below the largest singular value"
    raise AssertionError(msg)


def capacity(singular_values: Sequence[Any]) -> sp.Expr:
    """The capacity N itself, e to the power of `log_capacity` (T13)."""
    return sp.exp(log_capacity(singular_values))


def sphere_mean(dimension: Any, kappa: Any) -> sp.Expr:
    """M(κ) = Γ(d/2)(2/κ)^(d/2−1) I_(d/2−1)(κ), the mean of e^(κx) over a unit sphere (T13′)."""
    order = sp.sympify(dimension) / 2 - 1
    return sp.gamma(order + 1) * (2 / kappa) ** order * sp.besseli(order, kappa)


def log_sphere_mean(dimension: Any, kappa: Any) -> sp.Expr:
    """The logarithm of `sphere_mean`."""
    return sp.log(sphere_mean(dimension, kappa))


def flat_log_capacity(dimension: Any, singular_value: Any) -> sp.Expr:
    """κ − log M(κ), the bound on log N for κ ≤ d (T13′)."""
    return singular_value - log_sphere_mean(dimension, singular_value)


def _root(function: Any, low: Any, high: Any) -> sp.Expr:
    """The root of an increasing function between two numbers, to 80 digits."""
    import mpmath as mp

    with mp.workdps(100):
        left, right = mp.mpf(str(sp.N(low, 100))), mp.mpf(str(sp.N(high, 100)))
        left = left or right * mp.mpf(10) ** -30
        for _ in range(400):  # halvings: 85 digits of a root as small as 1e-30 of the end
            middle = (left + right) / 2
            left, right = (middle, right) if function(middle) < 0 else (left, middle)
        return sp.Float(str(right), 90)
