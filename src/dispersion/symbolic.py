"""The formulas of `row`, `entropy` and `capacity` as SymPy expressions, under the same names.

A formula is written once for each arithmetic: arrays (`dispersion.row`, `dispersion.capacity`),
balls (`dispersion.rigor`, `dispersion.rigor_capacity`) and symbols (here). The derivations in
`dispersion.proofs` are about the expressions of this module, and one test holds the three forms of
every formula together (``tests/formula_checks.py``).

Arguments are SymPy expressions or numbers; nothing is checked, and an infinite argument stands for
a limit that the caller takes. Needs SymPy (the extra ``proofs``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sympy as sp

from dispersion.symbolic_capacity import (
    capacity,
    flat_log_capacity,
    log_capacity,
    log_capacity_at,
    log_sphere_mean,
    simplex_ceiling,
    sphere_mean,
    steep_ceiling,
    water_pull,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "capacity",
    "capped_intercept",
    "capped_spread",
    "closed_min_entropy",
    "entropy_slope",
    "flat_log_capacity",
    "length_scaled_max_coefficient",
    "log_capacity",
    "log_capacity_at",
    "log_sphere_mean",
    "loose_max_coefficient",
    "max_coefficient",
    "max_coefficient_with_sink",
    "min_coefficient",
    "min_entropy",
    "min_set_mass",
    "norm_max_coefficient",
    "norm_min_entropy",
    "norm_spread",
    "reachable_length",
    "required_spread",
    "row_entropy",
    "set_mass",
    "simplex_ceiling",
    "sink_share",
    "softmax_coefficient",
    "sphere_mean",
    "steep_ceiling",
    "turning_point",
    "two_level_entropy",
    "water_pull",
]


def max_coefficient(n: Any, spread: Any, *, temperature: Any = 1) -> sp.Expr:
    """1/(1+(n−1)e^(−spread/temperature)) (T1)."""
    return 1 / (1 + (n - 1) * sp.exp(-spread / temperature))


def min_coefficient(n: Any, spread: Any, *, temperature: Any = 1) -> sp.Expr:
    """1/(1+(n−1)e^(spread/temperature)) (T1)."""
    return 1 / (1 + (n - 1) * sp.exp(spread / temperature))


def loose_max_coefficient(n: Any, spread: Any, *, temperature: Any = 1) -> sp.Expr:
    """The published e^(spread/temperature)/n (T1)."""
    return sp.exp(spread / temperature) / n


def set_mass(m: Any, n: Any, spread: Any, *, temperature: Any = 1) -> sp.Expr:
    """m/(m+(n−m)e^(−spread/temperature)) (T2)."""
    return m / (m + (n - m) * sp.exp(-spread / temperature))


def min_set_mass(m: Any, n: Any, spread: Any, *, temperature: Any = 1) -> sp.Expr:
    """m/(m+(n−m)e^(spread/temperature)) (T2)."""
    return m / (m + (n - m) * sp.exp(spread / temperature))


def two_level_entropy(k: Any, n: Any, spread: Any) -> sp.Expr:
    """Entropy of k items at the top and n−k at the bottom (T3)."""
    ratio = (n - k) * sp.exp(-spread) / k
    return sp.log(k) + sp.log(1 + ratio) + spread * ratio / (1 + ratio)


def turning_point(n: Any, spread: Any) -> sp.Expr:
    """The real k at which `two_level_entropy` is least (T3)."""
    bent = spread * sp.exp(spread) / (sp.exp(spread) - 1)
    return n * (bent - 1) / (sp.exp(spread) - 1)


def min_entropy(n: Any, spread: Any, *, temperature: Any = 1) -> sp.Expr:
    """The least `two_level_entropy` over whole k in 1..n−1, for whole n ≥ 2 (T3)."""
    spread = spread / temperature
    turn = turning_point(n, spread)
    # The turning point is at most n/2 (T3), so k stays below n.
    below, above = sp.Max(1, sp.floor(turn)), sp.Max(1, sp.ceiling(turn))
    return sp.Min(two_level_entropy(below, n, spread), two_level_entropy(above, n, spread))


def closed_min_entropy(n: Any, spread: Any, *, temperature: Any = 1) -> sp.Expr:
    """The closed floor log n − (D−1−log D), D = spread/(1−e^−spread) (T3)."""
    ratio = (spread / temperature) / (1 - sp.exp(-spread / temperature))
    return sp.log(n) - (ratio - 1 - sp.log(ratio))


def norm_spread(n: Any, norm: Any) -> sp.Expr:
    """The spread norm·√(n/(n−1)) of the row that attains T3′, for n ≥ 2."""
    return norm * sp.sqrt(n / (n - 1))


def norm_max_coefficient(n: Any, norm: Any) -> sp.Expr:
    """1/(1+(n−1)e^(−norm·√(n/(n−1)))), for n ≥ 2 (T3′)."""
    return max_coefficient(n, norm_spread(n, norm))


def norm_min_entropy(n: Any, norm: Any) -> sp.Expr:
    """log(1+(n−1)b) + norm·√(n(n−1))·b/(1+(n−1)b), b = e^(−norm·√(n/(n−1))), n ≥ 2 (T3′)."""
    b = sp.exp(-norm * sp.sqrt(n / (n - 1)))
    return sp.log(1 + (n - 1) * b) + norm * sp.sqrt(n * (n - 1)) * b / (1 + (n - 1) * b)


def required_spread(n: Any, coefficient: Any, *, items: Any = 1, temperature: Any = 1) -> sp.Expr:
    """temperature·log((n−items)p/(items(1−p))); 0 instead where it is negative (T4)."""
    return temperature * sp.log((n - items) * coefficient / (items * (1 - coefficient)))


def reachable_length(
    spread: Any, coefficient: Any, *, items: Any = 1, temperature: Any = 1
) -> sp.Expr:
    """items·(1+e^(spread/temperature)(1−p)/p), a real number (T4)."""
    return items * (1 + sp.exp(spread / temperature) * (1 - coefficient) / coefficient)


def softmax_coefficient(target: Any, others: Sequence[tuple[Any, Any]]) -> sp.Expr:
    """The coefficient of one logit among others, each given with its count."""
    return 1 / (1 + sum(count * sp.exp(logit - target) for logit, count in others))


def row_entropy(logits: Sequence[Any], *, inverse_temperature: Any = 1) -> sp.Expr:
    """Entropy of softmax(inverse_temperature·logits), −Σ α log α (T5)."""
    weights = [sp.exp(inverse_temperature * x) for x in logits]
    return -sum(w / sum(weights) * sp.log(w / sum(weights)) for w in weights)


def entropy_slope(logits: Sequence[Any], *, inverse_temperature: Any = 1) -> sp.Expr:
    """−b·Var(logits) under softmax(b·logits), b the inverse temperature (T5)."""
    weights = [sp.exp(inverse_temperature * x) for x in logits]
    shares = [w / sum(weights) for w in weights]
    mean = sum(a * x for a, x in zip(shares, logits, strict=True))
    pairs = zip(shares, logits, strict=True)
    return -inverse_temperature * sum(a * (x - mean) ** 2 for a, x in pairs)


def length_scaled_max_coefficient(n: Any, spread: Any, *, scale: Any = 1) -> sp.Expr:
    """1/(1+(n−1)n^(−scale·spread)) (T6)."""
    return 1 / (1 + (n - 1) * n ** (-scale * spread))


def max_coefficient_with_sink(n: Any, spread: Any, top: Any, *, sink: Any = 0) -> sp.Expr:
    """1/(1+(n−1)e^−spread+e^(sink−top)) (T7)."""
    return 1 / (1 + (n - 1) * sp.exp(-spread) + sp.exp(sink - top))


def sink_share(n: Any, level: Any, *, sink: Any = 0) -> sp.Expr:
    """e^sink/(e^sink+n·e^level) (T7)."""
    return sp.exp(sink) / (sp.exp(sink) + n * sp.exp(level))


def capped_spread(spread: Any, cap: Any) -> sp.Expr:
    """2·cap·tanh(spread/(2·cap)) (T8)."""
    return 2 * cap * sp.tanh(spread / (2 * cap))


def capped_intercept(slope: Any, cap: Any) -> sp.Expr:
    """The b of the tangent slope·z+b of cap·tanh(z/cap), cap·(h−slope·artanh h), h = √(1−slope)."""
    height = sp.sqrt(1 - slope)
    return cap * (height - slope * sp.atanh(height))
