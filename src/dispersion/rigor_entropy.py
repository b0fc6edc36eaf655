"""Certified entropy floors of one row (T3, T3′); `dispersion.rigor` exports them."""

from __future__ import annotations

import math
from typing import Any

import flint
from flint import arb

from dispersion._arrays import check
from dispersion._enclosing import between, checked, count_of, whole_part
from dispersion.balls import Number, in_precision
from dispersion.enclosure import Enclosure


@in_precision
def min_entropy(n: int, spread: Number, *, temperature: float = 1.0) -> Enclosure:
    """The smallest entropy of a row, in nats: the least over k in 1..n-1. **tight** (T3).

    `lower` is the certified floor. Every integer k within 1 of the enclosed turning point is
    tried, since a wrong k would lie above the minimum. Raises as `rigor.max_coefficient`.
    """
    n = count_of("n", n)
    low, high = checked("spread", spread)
    check("temperature", temperature)
    result = between(lambda d: _entropy_floor(n, d, temperature), high, low)
    return Enclosure(max(result.lower, 0.0), result.upper)


@in_precision
def closed_min_entropy(n: int, spread: Number, *, temperature: float = 1.0) -> Enclosure:
    """The closed floor log n - (D-1-log D), D = spread/(1-e^-spread). **lower** (T3).

    `lower` is the certified floor; it may be negative. Raises as `rigor.max_coefficient`.
    """
    n = count_of("n", n)
    low, high = checked("spread", spread)
    check("temperature", temperature)

    def floor(d: float) -> Any:
        if d == math.inf:
            return -math.inf
        if d == 0.0:
            return arb(n).log()
        spread = arb(d) / arb(temperature)
        ratio = spread / -(-spread).expm1()
        return arb(n).log() - (ratio - 1 - ratio.log())

    return between(floor, high, low)


@in_precision
def norm_min_entropy(n: int, norm: Number) -> Enclosure:
    """The smallest entropy where the centred logits have 2-norm at most `norm`. **tight** (T3′).

    `lower` is the certified floor. Raises as `rigor.norm_max_coefficient`.
    """
    n = count_of("n", n)
    low, high = checked("norm", norm)
    if n == 1:
        return Enclosure.exact(0.0)
    stretch = (arb(n) / (n - 1)).sqrt()
    result = between(lambda s: 0.0 if s == math.inf else _two_level(1, n, stretch * s), high, low)
    return Enclosure(max(result.lower, 0.0), result.upper)


def _two_level(k: int, n: int, spread: arb) -> arb:
    """Entropy of k items at the top and n-k lower by `spread`."""
    ratio = (arb(n) - k) * (-spread).exp() / k
    return arb(k).log() + ratio.log1p() + spread * ratio / (1 + ratio)


def _entropy_floor(n: int, spread: float, temperature: float) -> Any:
    if n == 1 or spread == math.inf:
        return 0.0
    if spread == 0.0:
        return arb(n).log()
    candidates: range | None = None
    precision = flint.ctx.prec
    while candidates is None:
        # Small spreads cancel: the turning point needs twice their bits.
        with flint.ctx.workprec(precision):
            d = arb(spread) / arb(temperature)
            turn = n * (d / -(-d).expm1() - 1) / d.expm1()
            if turn.rad() < 1:
                first, last = whole_part((turn - 1).lower()), whole_part((turn + 1).upper()) + 1
                candidates = range(max(1, min(first, n - 1)), max(1, min(last, n - 1)) + 1)
        precision *= 2
    d = arb(spread) / arb(temperature)
    least = None
    for k in candidates:
        entropy = _two_level(k, n, d)
        least = entropy if least is None else least.min(entropy)
    return least
