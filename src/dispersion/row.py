"""One attention row: what n unmasked items and a spread of logits allow (T1-T8).

A row has n unmasked logits l_1..l_n with coefficients softmax(l); its spread is max l - min l, in
logits, after the logit scale. Functions broadcast over their arguments and work elementwise on
NumPy, JAX (under jit, grad and vmap) and other array-API libraries; Python numbers give a float.
n counts unmasked items; it may be any real number of at least 1, and the formulas interpolate.

**tight** means that a row attains the value; **upper** and **lower** that none exceeds it.
Results are accurate to a few units in the last place for n up to 1e12, but they are rounded: a
verdict uses the enclosures of `dispersion.rigor`, which has the same names.

Sources: [V] Veličković et al. 2024, https://arxiv.org/abs/2410.01104, whose bound is
`loose_max_coefficient`; everything else is derived here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dispersion._arrays import (
    Array,
    check_at_most,
    difference,
    prepare,
    product_less,
    scaled,
)
from dispersion.entropy import (
    closed_min_entropy,
    entropy_slope,
    min_entropy,
    norm_min_entropy,
    norm_spread,
    row_entropy,
)

__all__ = [
    "capped_spread",
    "closed_min_entropy",
    "entropy_slope",
    "length_scaled_max_coefficient",
    "loose_max_coefficient",
    "max_coefficient",
    "max_coefficient_with_sink",
    "min_coefficient",
    "min_entropy",
    "min_set_mass",
    "norm_max_coefficient",
    "norm_min_entropy",
    "reachable_length",
    "required_spread",
    "row_entropy",
    "set_mass",
    "sink_share",
]

quiet = np.errstate(over="ignore", under="ignore")  # inf and 0 are the right answers there


@quiet
def max_coefficient(n: Array, spread: Array, *, temperature: Array = 1.0) -> Any:
    """The largest coefficient of a row: 1/(1+(n-1)e^(-spread/temperature)). **tight** (T1).

    Attained by one item at the top and the rest at the bottom. 1 at n = 1 and at infinite spread,
    1/n at spread 0.

    Raises:
        ArgumentError: n < 1, spread < 0, temperature not positive, or nan.
    """
    xp, (n, spread, temperature), finish = prepare(n=n, spread=spread, temperature=temperature)
    return finish(_ceiling(xp, n, scaled(xp, spread, temperature)))


@quiet
def min_coefficient(n: Array, spread: Array, *, temperature: Array = 1.0) -> Any:
    """The smallest coefficient of a row: 1/(1+(n-1)e^(spread/temperature)). **tight** (T1).

    Attained by one item at the bottom and the rest at the top. Raises as `max_coefficient`.
    """
    xp, (n, spread, temperature), finish = prepare(n=n, spread=spread, temperature=temperature)
    spread = scaled(xp, spread, temperature)
    return finish(_least(xp, xp.ones_like(n), n - 1.0, spread))


@quiet
def loose_max_coefficient(n: Array, spread: Array, *, temperature: Array = 1.0) -> Any:
    """The published ceiling e^(spread/temperature)/n. **upper** (T1; [V], Lemma 2.1).

    Never attained for n ≥ 2 and spread > 0, and above 1 once spread > log n; kept for comparison.
    Raises as `max_coefficient`.
    """
    xp, (n, spread, temperature), finish = prepare(n=n, spread=spread, temperature=temperature)
    half = xp.exp(0.5 * scaled(xp, spread, temperature))  # squared last, so as not to overflow
    return finish(half * (half / n))


@quiet
def set_mass(m: Array, n: Array, spread: Array, *, temperature: Array = 1.0) -> Any:
    """The most that m of n items hold together: m/(m+(n-m)e^(-spread)). **tight** (T2).

    With m the number of sink tokens it is the ceiling of the attention sink.

    Raises:
        ArgumentError: m < 0 or m > n, and as `max_coefficient`.
    """
    check_at_most("m", m, "n", n)
    xp, (m, n, spread, temperature), finish = prepare(
        m=m, n=n, spread=spread, temperature=temperature
    )
    rest = (n - m) * xp.exp(-scaled(xp, spread, temperature))
    whole = m + rest
    # m = 0 at a huge spread: 0/whole² in a gradient would be 0/0.
    empty = (m == 0.0) & (whole < float(xp.finfo(whole.dtype).smallest_normal) ** 0.5)
    return finish(m / xp.where(empty, 1.0, whole))


@quiet
def min_set_mass(m: Array, n: Array, spread: Array, *, temperature: Array = 1.0) -> Any:
    """The least that m of n items hold together: m/(m+(n-m)e^spread). **tight** (T2).

    Raises as `set_mass`.
    """
    check_at_most("m", m, "n", n)
    xp, (m, n, spread, temperature), finish = prepare(
        m=m, n=n, spread=spread, temperature=temperature
    )
    return finish(_least(xp, m, n - m, scaled(xp, spread, temperature)))


@quiet
def norm_max_coefficient(n: Array, norm: Array) -> Any:
    """The largest coefficient of a row whose centred logits have 2-norm at most `norm`.

    1/(1+(n-1)e^(-norm·√(n/(n-1)))). **tight** (T3′; the entropy floor of the same row is
    `norm_min_entropy`).

    Raises:
        ArgumentError: n < 1, norm < 0, or nan.
    """
    xp, (n, norm), finish = prepare(n=n, norm=norm)
    base, extra = norm_spread(xp, n, norm)
    return finish(1.0 / (1.0 + (n - 1.0) * xp.exp(-base) * xp.exp(-extra)))


@quiet
def required_spread(
    n: Array, coefficient: Array, *, items: Array = 1.0, temperature: Array = 1.0
) -> Any:
    """The spread a row needs before `items` of its n items can hold `coefficient`. **tight** (T4).

    temperature·log((n-items)p/(items·(1-p))), or 0 where that is negative: any row will do. The
    value is rounded to nearest, so it may lie a few units in the last place on either side.

    Raises:
        ArgumentError: coefficient not strictly between 0 and 1, items > n, and as
            `max_coefficient`.
    """
    check_at_most("items", items, "n", n)
    xp, (n, p, items, temperature), finish = prepare(
        n=n, coefficient=coefficient, items=items, temperature=temperature
    )
    # log1p of (np-items)/(items(1-p)): log of a ratio near 1 would lose the digits of a small
    # spread, and so would np - items without the rounding error of np.
    odds = product_less(xp, n, p, items) / (items * (1.0 - p))
    needed = odds > 0.0
    return finish(temperature * xp.log1p(xp.where(needed, odds, 0.0)))


@quiet
def reachable_length(
    spread: Array, coefficient: Array, *, items: Array = 1.0, temperature: Array = 1.0
) -> Any:
    """The longest row in which `items` items can hold `coefficient` at this spread. **tight** (T4).

    items·(1 + e^spread·(1-p)/p), a real number: no row with more items can, and its integer part
    is the largest length. inf at infinite spread. Rounded to nearest.

    Raises:
        ArgumentError: coefficient not strictly between 0 and 1, and as `max_coefficient`.
    """
    xp, (spread, p, items, temperature), finish = prepare(
        spread=spread, coefficient=coefficient, items=items, temperature=temperature
    )
    half = xp.exp(0.5 * scaled(xp, spread, temperature))  # squared last, so as not to overflow
    return finish(items + items * half * (half * ((1.0 - p) / p)))


@quiet
def length_scaled_max_coefficient(n: Array, spread: Array, *, scale: Array = 1.0) -> Any:
    """The ceiling when logits of this spread are multiplied by scale·log n. **tight** (T6).

    1/(1+(n-1)n^(-scale·spread)): as n grows it tends to 1, 1/2 or 0 where scale·spread is above,
    at or below 1.

    Raises:
        ArgumentError: scale < 0 or infinite, and as `max_coefficient`.
    """
    xp, (n, spread, scale), finish = prepare(n=n, spread=spread, scale=scale)
    known = xp.isfinite(spread) & (n > 1.0)
    power = xp.where(known, n, 1.0) ** -(scale * xp.where(known, spread, 0.0))
    return finish(1.0 / (1.0 + (n - 1.0) * xp.where(xp.isinf(spread), 0.0, power)))


@quiet
def max_coefficient_with_sink(n: Array, spread: Array, top: Array, *, sink: Array = 0.0) -> Any:
    """The largest coefficient when a sink logit joins the denominator. **tight** (T7).

    1/(1+(n-1)e^-spread+e^(sink-top)) for logits in [top-spread, top]. `sink` is 0 for
    softmax-off-by-one and -inf for none. The level matters here: biases that shift every logit
    belong in `top`. Coefficients no longer add up to 1, and the floors of T1 and T3 do not hold.

    Raises:
        ArgumentError: top not finite, sink inf, and as `max_coefficient`.
    """
    xp, (n, spread, top, sink), finish = prepare(n=n, spread=spread, top=top, sink=sink)
    above, near = _smaller_ratio(xp, sink, top)
    items = 1.0 + (n - 1.0) * xp.exp(-spread)
    return finish(xp.where(above, near / (near * items + 1.0), 1.0 / (items + near)))


@quiet
def sink_share(n: Array, level: Array, *, sink: Array = 0.0) -> Any:
    """The sink's share when all n logits equal `level`: e^sink/(e^sink+n·e^level). **tight** (T7).

    With logits in [lo, hi] the share lies between sink_share(n, hi) and sink_share(n, lo).

    Raises:
        ArgumentError: n < 1, level not finite, sink inf, or nan.
    """
    xp, (n, level, sink), finish = prepare(n=n, level=level, sink=sink)
    above, near = _smaller_ratio(xp, sink, level)
    return finish(xp.where(above, 1.0 / (1.0 + n * near), near / (near + n)))


@quiet
def capped_spread(spread: Array, cap: Array) -> Any:
    """The largest spread after the soft cap l = cap·tanh(z/cap). **tight** (T8).

    2·cap·tanh(spread/(2·cap)), below 2·cap, where `spread` is the spread of z; attained by logits
    placed symmetrically about 0.

    Raises:
        ArgumentError: spread < 0, cap not positive and finite, or nan.
    """
    xp, (spread, cap), finish = prepare(spread=spread, cap=cap)
    infinite = xp.isinf(spread)
    bent = xp.tanh(0.5 * xp.where(infinite, 0.0, spread) / cap)
    return finish(cap * (2.0 * xp.where(infinite, 1.0, bent)))


def _ceiling(xp: Any, n: Array, spread: Array) -> Array:
    return 1.0 / (1.0 + (n - 1.0) * xp.exp(-spread))


def _least(xp: Any, m: Array, rest: Array, spread: Array) -> Array:
    """m/(m + rest·e^spread), right where e^spread overflows and at rest = 0."""
    limit = 0.5 * float(np.log(float(xp.finfo(spread.dtype).max)))
    far = spread > limit
    near_value = m / (m + rest * xp.exp(xp.where(far, 0.0, spread)))
    half = xp.exp(-0.5 * spread)
    whole = half * (half * m) + xp.where(rest > 0.0, rest, 1.0)
    far_value = xp.where(rest > 0.0, half * (half * m / whole), 1.0)
    return xp.where(far, far_value, near_value)


def _smaller_ratio(xp: Any, a: Array, b: Array) -> tuple[Array, Array]:
    """Whether a > b, and e^-|a-b|, which cannot overflow."""
    excess, error = difference(xp, a, b)
    above = excess > 0.0
    near = xp.exp(xp.where(above, -excess, excess))
    # The rounding error of a - b, to first order: XLA would fold a product of two exponentials
    # into the exponential of the rounded sum.
    return above, near + near * xp.where(above, -error, error)
