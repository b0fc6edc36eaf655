"""The entropy of one attention row, in nats: floors from its spread or norm (T3, T3′, T5).

Conventions are those of `dispersion.row`, which exports these functions too.

Source of T3′: [Z] Zhai et al. 2023, Theorem 3.1, https://arxiv.org/abs/2303.06296.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dispersion._arrays import Array, decay, prepare, scaled

quiet = np.errstate(over="ignore", under="ignore")

# Below this spread the difference D - 1 is taken from its power series.
_SERIES = 1e-2


@quiet
def min_entropy(n: Array, spread: Array, *, temperature: Array = 1.0) -> Any:
    """The smallest entropy of a row of n items with this spread, in nats. **tight** (T3).

    The minimum over k in 1..n-1 of the entropy of k items at the top and n-k at the bottom, and 0
    at n = 1. Found in constant time: in real k the entropy falls, then rises, so the integers on
    either side of its turning point suffice. k = 1 is often not the minimiser. For real n, k runs
    over the integers below n and n - k counts the bottom items.

    Raises:
        ArgumentError: n < 1, spread < 0, temperature not positive, or nan.
    """
    xp, (n, spread, temperature), finish = prepare(n=n, spread=spread, temperature=temperature)
    spread = scaled(xp, spread, temperature)
    turn = n * _turning_share(xp, spread)
    last = xp.where(n > 1.0, xp.ceil(n) - 1.0, 1.0)
    below = xp.where(xp.floor(turn) > 1.0, xp.floor(turn), 1.0)
    above = xp.where(xp.ceil(turn) > 1.0, xp.ceil(turn), 1.0)
    above = xp.where(above > last, last, above)
    first, second = (_two_level(xp, k, n, spread) for k in (below, above))
    return finish(xp.where(second < first, second, first))


@quiet
def closed_min_entropy(n: Array, spread: Array, *, temperature: Array = 1.0) -> Any:
    """A closed entropy floor, log n - (D-1-log D) with D = spread/(1-e^-spread). **lower** (T3).

    Holds for every n; negative, so worth nothing, where the spread is large against log n. Its
    rounding error is a few ulp of log n + D rather than of the difference. Raises as
    `min_entropy`.
    """
    xp, (n, spread, temperature), finish = prepare(n=n, spread=spread, temperature=temperature)
    spread = scaled(xp, spread, temperature)
    excess = _excess(xp, spread)
    floor = xp.log(n) - (excess - xp.log1p(excess))
    return finish(xp.where(xp.isinf(spread), -xp.inf, floor))


@quiet
def norm_min_entropy(n: Array, norm: Array) -> Any:
    """The smallest entropy of a row whose centred logits have 2-norm at most `norm`. **tight**.

    log(1+(n-1)b) + norm·√(n(n-1))·b/(1+(n-1)b) with b = e^(-norm·√(n/(n-1))) (T3′; [Z], Theorem
    3.1), and 0 at n = 1. Its relative error grows to about norm·√(n/(n-1))·2⁻⁵³ where the floor
    itself is far below 1, because the square root is rounded.

    Raises:
        ArgumentError: n < 1, norm < 0, or nan.
    """
    xp, (n, norm), finish = prepare(n=n, norm=norm)
    base, extra = norm_spread(xp, n, norm)
    return finish(_two_level(xp, xp.ones_like(n), n, base, extra))


@quiet
def row_entropy(logits: Array, *, inverse_temperature: Array = 1.0, axis: int = -1) -> Any:
    """Entropy of softmax(inverse_temperature·logits) along an axis, in nats; exact (T5).

    It never rises with the inverse temperature: its derivative is `entropy_slope`.

    Args:
        logits: shape (..., n, ...), -inf where masked; at least one finite logit in each row.
        inverse_temperature: a number of 0 or more.
        axis: the axis of the row.

    Raises:
        ArgumentError: nan or inf among the logits, inverse_temperature < 0.
    """
    xp, weights, rest, gap, beta, finish = _weights(logits, inverse_temperature, axis)
    total = 1.0 + rest
    return finish(xp.log1p(rest) + beta * xp.sum(weights * gap, axis=axis) / total)


@quiet
def entropy_slope(logits: Array, *, inverse_temperature: Array = 1.0, axis: int = -1) -> Any:
    """Derivative of `row_entropy` in the inverse temperature, -b·Var(logits) ≤ 0; exact (T5).

    Arguments and errors are those of `row_entropy`.
    """
    xp, weights, rest, gap, beta, finish = _weights(logits, inverse_temperature, axis)
    share = weights / xp.expand_dims(1.0 + rest, axis=axis)
    mean = xp.sum(share * gap, axis=axis, keepdims=True)
    return finish(-beta * xp.sum(share * (gap - mean) ** 2, axis=axis))


def norm_spread(xp: Any, n: Array, norm: Array) -> tuple[Array, Array]:
    """The spread norm·√(n/(n-1)) of T3′ as `norm` plus a small remainder, for n > 1."""
    # Kept apart because e^-norm·e^-remainder rounds far less than the exponential of their sum.
    other = xp.where(n > 1.0, n - 1.0, 1.0)
    ratio = 1.0 / other
    finite = xp.where(xp.isinf(norm), 0.0, norm)
    return norm, finite * (ratio / (1.0 + xp.sqrt(1.0 + ratio)))


def _excess(xp: Any, spread: Array) -> Array:
    """D - 1 with D = spread/(1-e^-spread); 0 at infinity, which callers treat apart."""
    small = spread < _SERIES
    series = xp.where(small, spread, 0.0)
    series = series * (0.5 + series * (1.0 / 12.0 - series * series / 720.0))
    usual = xp.where(small | xp.isinf(spread), 1.0, spread)
    return xp.where(small, series, usual / -xp.expm1(-usual) - 1.0)


def _turning_share(xp: Any, spread: Array) -> Array:
    """k*/n = (D-1)/(e^spread-1), from 1/2 at spread 0 down to 0."""
    small = spread < _SERIES
    usual = xp.where(small | xp.isinf(spread), 1.0, spread)
    direct = _excess(xp, usual) * xp.exp(-usual) / -xp.expm1(-usual)
    near = xp.where(small, spread, 0.0)
    share = xp.where(small, 0.5 - near * (1.0 / 6.0 - near * near / 180.0), direct)
    return xp.where(xp.isinf(spread), 0.0, share)


def _two_level(xp: Any, k: Array, n: Array, spread: Array, extra: Array | None = None) -> Array:
    """Entropy of k items at the top and n-k lower by spread + extra.

    With r = (n-k)e^-spread/k it is log k + log1p(r) + spread·r/(1+r): every term is positive, so
    nothing cancels.
    """
    first, second = decay(xp, spread)
    finite = xp.where(xp.isinf(spread), 0.0, spread)
    if extra is not None:
        first, finite = first * xp.exp(-extra), finite + extra
    unit = (n - k) / k * first
    ratio = unit * second
    return xp.log(k) + xp.log1p(ratio) + (finite * unit) * second / (1.0 + ratio)


def _weights(
    logits: Array, inverse_temperature: Array, axis: int
) -> tuple[Any, Array, Array, Array, Array, Any]:
    """Weights e^(-b·gap), their sum less the top item's 1, the gaps below the top, and b."""
    xp, (logits, beta), finish = prepare(logits=logits, inverse_temperature=inverse_temperature)
    masked = xp.isinf(logits)
    top = xp.max(logits, axis=axis, keepdims=True)
    gap = xp.where(masked, 0.0, top - xp.where(masked, 0.0, logits))
    weights = xp.where(masked, 0.0, xp.exp(-beta * gap))
    # One top item is left out of the sum by position: subtracting 1 would cancel.
    first = xp.argmax(logits, axis=axis, keepdims=True)
    shape = [1] * logits.ndim
    shape[axis] = logits.shape[axis]
    place = xp.reshape(xp.arange(logits.shape[axis]), tuple(shape))
    rest = xp.sum(xp.where(place == first, 0.0, weights), axis=axis)
    return xp, weights, rest, gap, beta, finish
