"""The statements of `dispersion.row` as theorems: same names, values enclosed.

n and m are whole numbers of any size; a spread, level or coefficient is a float or an
`Enclosure`. The result is an `Enclosure` of the set of exact values over the arguments, computed
in ball arithmetic and rounded outward to float64: within about one ulp at each end for n up to
2^63 and spreads up to 1e5. `upper` of a ceiling and `lower` of a floor are the certified ends;
with an enclosed spread they are taken at its upper end.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from flint import arb

from dispersion._arrays import check
from dispersion._enclosing import between, checked, clipped, count_of, counts, whole_part
from dispersion.balls import (
    Number,
    ends,
    from_arb,
    in_precision,
    product,
    quotient,
    round_down,
    round_up,
    sqrt_enclosure,
    to_arb,
    total,
)
from dispersion.enclosure import Enclosure, Estimate
from dispersion.errors import ArgumentError
from dispersion.rigor_entropy import closed_min_entropy, min_entropy, norm_min_entropy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "Enclosure",
    "Estimate",
    "capped_intercept",
    "capped_spread",
    "closed_min_entropy",
    "from_arb",
    "length_scaled_max_coefficient",
    "loose_max_coefficient",
    "max_coefficient",
    "max_coefficient_with_sink",
    "min_coefficient",
    "min_entropy",
    "min_set_mass",
    "norm_max_coefficient",
    "norm_min_entropy",
    "product",
    "quotient",
    "reachable_length",
    "required_spread",
    "set_mass",
    "sink_share",
    "softmax_coefficient",
    "sqrt_enclosure",
    "to_arb",
    "total",
]


def max_coefficient(n: int, spread: Number, *, temperature: float = 1.0) -> Enclosure:
    """The largest coefficient of a row, 1/(1+(n-1)e^(-spread/temperature)). **tight** (T1).

    Raises:
        ArgumentError: n is not a whole number of at least 1, spread < 0, temperature not
            positive, or nan.
    """
    return set_mass(1, n, spread, temperature=temperature)


def min_coefficient(n: int, spread: Number, *, temperature: float = 1.0) -> Enclosure:
    """The smallest coefficient of a row, 1/(1+(n-1)e^(spread/temperature)). **tight** (T1).

    `lower` is the certified floor. Raises as `max_coefficient`.
    """
    return min_set_mass(1, n, spread, temperature=temperature)


@in_precision
def loose_max_coefficient(n: int, spread: Number, *, temperature: float = 1.0) -> Enclosure:
    """The published ceiling e^(spread/temperature)/n. **upper** (T1). Raises as above."""
    n = count_of("n", n)
    low, high = checked("spread", spread)
    check("temperature", temperature)
    return between(
        lambda d: math.inf if d == math.inf else (arb(d) / arb(temperature)).exp() / n, low, high
    )


@in_precision
def set_mass(m: int, n: int, spread: Number, *, temperature: float = 1.0) -> Enclosure:
    """The most that m of n items hold together, m/(m+(n-m)e^-spread). **tight** (T2).

    Raises:
        ArgumentError: m is not a whole number in 0..n, and as `max_coefficient`.
    """
    m, n = counts(m, n)
    low, high = checked("spread", spread)
    check("temperature", temperature)
    return clipped(between(lambda d: _mass(m, n, d, -temperature), low, high))


@in_precision
def min_set_mass(m: int, n: int, spread: Number, *, temperature: float = 1.0) -> Enclosure:
    """The least that m of n items hold together, m/(m+(n-m)e^spread). **tight** (T2).

    `lower` is the certified floor. Raises as `set_mass`.
    """
    m, n = counts(m, n)
    low, high = checked("spread", spread)
    check("temperature", temperature)
    return clipped(between(lambda d: _mass(m, n, d, temperature), high, low))


@in_precision
def norm_max_coefficient(n: int, norm: Number) -> Enclosure:
    """The largest coefficient where the centred logits have 2-norm at most `norm`. **tight** (T3′).

    Raises:
        ArgumentError: n is not a whole number of at least 1, norm < 0, or nan.
    """
    n = count_of("n", n)
    low, high = checked("norm", norm)
    if n == 1:
        return Enclosure.exact(1.0)
    stretch = (arb(n) / (n - 1)).sqrt()
    return clipped(
        between(
            lambda s: 1.0 if s == math.inf else 1 / (1 + (n - 1) * (-stretch * s).exp()), low, high
        )
    )


@in_precision
def required_spread(
    n: int, coefficient: Number, *, items: int = 1, temperature: float = 1.0
) -> Enclosure:
    """The spread a row needs before `items` of n items can hold `coefficient`. **tight** (T4).

    A head whose certified spread is below `lower` cannot. 0 where any row will do.

    Raises:
        ArgumentError: coefficient not strictly between 0 and 1, items not a whole number in 1..n,
            and as `max_coefficient`.
    """
    items, n = counts(items, n, name="items")
    low, high = checked("coefficient", coefficient)
    check("temperature", temperature)
    if items == n:
        return Enclosure.exact(0.0)

    def needed(p: float) -> Any:
        odds = (arb(n) - items) * arb(p) / (items * (1 - arb(p)))
        return arb(temperature) * odds.log()

    result = between(needed, low, high)
    return Enclosure(max(result.lower, 0.0), max(result.upper, 0.0))


@in_precision
def reachable_length(
    spread: Number, coefficient: Number, *, items: int = 1, temperature: float = 1.0
) -> Enclosure:
    """The largest whole length at which `items` items can hold `coefficient`. **tight** (T4).

    Both ends are whole numbers (inf where the spread is infinite or the number exceeds float64).
    Every length above `upper` is ruled out: the claim a certificate makes. At every length up to
    `lower` a row of spread at least `spread.lower` attains the coefficient.

    Raises:
        ArgumentError: as `required_spread`.
    """
    items = count_of("items", items)
    low, high = checked("spread", spread)
    p_low, p_high = checked("coefficient", coefficient)
    check("temperature", temperature)

    def length(d: float, p: float) -> Any:
        if d == math.inf:
            return math.inf
        odds = (1 - arb(p)) / arb(p)
        return items * (1 + (arb(d) / arb(temperature)).exp() * odds)

    lower, upper = length(low, p_high), length(high, p_low)
    return Enclosure(
        lower if lower == math.inf else _floor(lower.lower(), round_down),
        upper if upper == math.inf else _floor(upper.upper(), round_up),
    )


@in_precision
def length_scaled_max_coefficient(n: int, spread: Number, *, scale: float = 1.0) -> Enclosure:
    """The ceiling when logits are multiplied by scale·log n, 1/(1+(n-1)n^(-scale·spread)).

    **tight** (T6). Raises as `max_coefficient`, and for scale < 0.
    """
    n = count_of("n", n)
    low, high = checked("spread", spread)
    check("scale", scale)

    def ceiling(d: float) -> Any:
        if d == math.inf:
            return 1.0 if scale > 0 else arb(1) / n
        return 1 / (1 + (n - 1) * (-arb(scale) * arb(d) * arb(n).log()).exp())

    return clipped(between(ceiling, low, high))


@in_precision
def max_coefficient_with_sink(
    n: int, spread: Number, top: Number, *, sink: Number = 0.0
) -> Enclosure:
    """The largest coefficient with a sink logit in the denominator. **tight** (T7).

    1/(1+(n-1)e^-spread+e^(sink-top)) for logits in [top-spread, top]; sink -inf stands for none.

    Raises:
        ArgumentError: top not finite, sink inf, and as `max_coefficient`.
    """
    n = count_of("n", n)
    low, high = checked("spread", spread)
    top_low, top_high = checked("top", top)
    sink_low, sink_high = checked("sink", sink)

    def ceiling(d: float, t: float, b: float) -> Any:
        rest = arb(0) if d == math.inf else (n - 1) * (-arb(d)).exp()
        extra = arb(0) if b == -math.inf else (arb(b) - arb(t)).exp()
        return 1 / (1 + rest + extra)

    return clipped(
        Enclosure(
            round_down(ceiling(low, top_low, sink_high)),
            round_up(ceiling(high, top_high, sink_low)),
        )
    )


@in_precision
def sink_share(n: int, level: Number, *, sink: Number = 0.0) -> Enclosure:
    """The sink's share when all n logits equal `level`. **tight** (T7).

    With logits in [lo, hi] pass Enclosure(lo, hi): the result then encloses the share.

    Raises:
        ArgumentError: n is not a whole number of at least 1, level not finite, sink inf, or nan.
    """
    n = count_of("n", n)
    low, high = checked("level", level)
    sink_low, sink_high = checked("sink", sink)

    def share(x: float, b: float) -> Any:
        return 0.0 if b == -math.inf else 1 / (1 + n * (arb(x) - arb(b)).exp())

    return clipped(Enclosure(round_down(share(high, sink_low)), round_up(share(low, sink_high))))


@in_precision
def capped_spread(spread: Number, cap: float) -> Enclosure:
    """The largest spread after the soft cap l = cap·tanh(z/cap). **tight** (T8).

    Raises:
        ArgumentError: spread < 0, cap not positive and finite, or nan.
    """
    low, high = checked("spread", spread)
    check("cap", cap)
    whole = 2 * arb(cap)
    result = between(
        lambda d: whole if d == math.inf else whole * (arb(d) / whole).tanh(), low, high
    )
    return Enclosure(max(result.lower, 0.0), min(result.upper, round_up(whole)))


@in_precision
def capped_intercept(slope: float, cap: float) -> Enclosure:
    """The b of the line slope·z + b that touches cap·tanh(z/cap) from above on z ≥ 0 (T8).

    Raises:
        ArgumentError: slope not in (0, 1], cap not positive and finite, or nan.
    """
    check("cap", cap)
    if not 0 < slope <= 1:
        msg = f"slope must lie in (0, 1]: it is that of a tangent. Got {slope}."
        raise ArgumentError(msg)
    height = (1 - arb(slope)).sqrt()
    return from_arb(arb(cap) * (height - arb(slope) * height.atanh()))


@in_precision
def softmax_coefficient(target: Number, others: Sequence[tuple[Number, int]]) -> Enclosure:
    """The coefficient e^t/(e^t+Σ count·e^l) of one logit among others, each with its count.

    Logits of any finite size, and infinite ends of enclosures.

    Raises:
        ArgumentError: a count is negative or not whole, or nan.
    """
    counted = [(ends(logit), count_of("count", count, least=0)) for logit, count in others]
    low, high = ends(target)
    return clipped(
        Enclosure(
            round_down(_softmax(low, [(up, count) for (_, up), count in counted])),
            round_up(_softmax(high, [(down, count) for (down, _), count in counted])),
        )
    )


def _softmax(target: float, others: list[tuple[float, int]]) -> Any:
    """The coefficient at exact logits; an infinite end stands for its limit."""
    others = [(logit, count) for logit, count in others if count and logit != -math.inf]
    if not others:
        return 1.0
    if target == -math.inf or any(logit == math.inf for logit, _ in others):
        return 0.0
    if target == math.inf:
        return 1.0
    terms = (count * (arb(logit) - arb(target)).exp() for logit, count in others)
    return 1 / (1 + sum(terms, arb(0)))


def _mass(m: int, n: int, spread: float, divisor: float) -> Any:
    """m/(m+(n-m)e^(spread/divisor)) with its limit at infinite spread."""
    if m in (0, n):
        return float(m == n)
    if spread == math.inf:
        return float(divisor < 0)
    return arb(m) / (m + (arb(n) - m) * (arb(spread) / arb(divisor)).exp())


def _floor(end: arb, rounding: Callable[[Any], float]) -> float:
    """The integer part of an exact end, as a float rounded in the given direction."""
    if not abs(end) < arb(2) ** 1100:
        return math.inf if rounding is round_up else math.nextafter(math.inf, 0.0)
    return rounding(Fraction(whole_part(end)))
