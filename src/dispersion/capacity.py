"""How many tokens a head can retrieve at all: T12 and T13 on arrays.

In a context of n keys, common and visible to all queries, let p be the smallest coefficient that
the query for a token puts on it. Then p ≤ N/n whatever the tokens, N being the head's capacity: it
sees the whole spectrum κ of AᵀC with the logit scale, not only the largest value. In any context,
however long, at most N/p tokens can be retrieved with coefficient p each. The query token's own key
is not one of the n: a causal head over n tokens has n − 1.

Functions work on NumPy, JAX (under jit, grad and vmap) and other array-API libraries and reduce the
last axis of `singular_values`. They are rounded; certificates use `dispersion.rigor`. For soft
caps, biases and rotation see `dispersion.spectrum`.
"""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np

from dispersion._arrays import Array, prepare
from dispersion.errors import ArgumentError

__all__ = ["any_token_ceiling", "capacity", "log_capacity", "simplex_ceiling", "water_level"]

_BISECTIONS = 64


def log_capacity(singular_values: Array) -> Any:
    """The logarithm of a head's capacity N, in nats. **upper** (T13).

    log N = min over t > 0 of  t + ½ Σ_{κ_i > t} log((κ_i/t)² / (2κ_i/t − 1)); 0 where all are 0.
    N itself overflows for real heads. Never above κ_1; increasing in every κ_i; differentiable
    once.

    Args:
        singular_values: shape (..., r), r ≥ 1, at least 0, in any order, the logit scale
            included. A list gives a float.

    Raises:
        ArgumentError: a value is negative, infinite or nan, or there are none.
    """
    xp, (kappa,), _ = prepare(singular_values=_spectrum(singular_values))
    return _finished(_log_capacity(xp, kappa), singular_values)


def capacity(singular_values: Array) -> Any:
    """N of `log_capacity`; inf where it overflows. **upper** (T13). Raises as `log_capacity`."""
    xp, (kappa,), _ = prepare(singular_values=_spectrum(singular_values))
    with np.errstate(over="ignore"):
        return _finished(xp.exp(_log_capacity(xp, kappa)), singular_values)


def simplex_ceiling(n: Array, singular_value: Array) -> Any:
    """1/(1+(n−1)e^(−κ n/(n−1))): no context of n ≥ 2 keys does better for all of them.

    **tight** where n − 1 singular values equal the largest, κ (T12): a regular simplex attains it.
    1 at n = 1.

    Raises:
        ArgumentError: n < 1, or the value is negative, infinite or nan.
    """
    xp, (n, kappa), finish = prepare(n=n, singular_values=singular_value)
    return finish(_simplex(xp, n, kappa))


def any_token_ceiling(n: Array, singular_values: Array) -> Any:
    """The largest coefficient that every one of n tokens can get. **upper**, min of T12 and T13.

    Args:
        n: keys common to all queries, without the query token's own; broadcasts with the leading
            axes of `singular_values`.
        singular_values: shape (..., r), r ≥ 1, the logit scale included.

    Raises:
        ArgumentError: n < 1, a value is negative, infinite or nan, or there are none.
    """
    plain = singular_values if isinstance(n, (int, float)) else None
    xp, (n, kappa), _ = prepare(n=n, singular_values=_spectrum(singular_values))
    share = xp.exp(xp.minimum(_log_capacity(xp, kappa) - xp.log(n), xp.zeros_like(n)))
    return _finished(xp.minimum(share, _simplex(xp, n, xp.max(kappa, axis=-1))), plain)


def water_level(singular_values: Array) -> Any:
    """The minimising t of T13, the root of t = Σ_{κ_i > t} (κ_i − t)/(2κ_i − t).

    Raises as `log_capacity`.
    """
    xp, (kappa,), _ = prepare(singular_values=_spectrum(singular_values))
    return _finished(_level(xp, kappa), singular_values)


def _spectrum(values: Array) -> Array:
    """Lists as arrays; ArgumentError where there is no last axis to reduce."""
    if isinstance(values, (list, tuple)):
        try:
            values = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            msg = f"singular_values must be a list of numbers of one length. Got: {error}."
            raise ArgumentError(msg) from None
    shape = getattr(values, "shape", ())
    if not shape or shape[-1] == 0:
        msg = f"singular_values must have shape (..., r) with r at least 1. Got shape {shape}."
        raise ArgumentError(msg)
    return values


def _finished(result: Array, given: Array) -> Any:
    """A float where one list of Python numbers was given."""
    return float(result) if isinstance(given, (list, tuple)) and result.ndim == 0 else result


def _simplex(xp: Any, n: Array, kappa: Array) -> Array:
    more = xp.where(n > 1, n - 1, xp.ones_like(n))
    with np.errstate(over="ignore"):  # e^-inf = 0 is right there
        return xp.where(n > 1, 1 / (1 + more * xp.exp(-kappa * (n / more))), xp.ones_like(n))


def _level(xp: Any, kappa: Array) -> Array:
    """The minimiser t by bisection, between the roots for one and for r values equal to κ_1."""
    top = xp.max(kappa, axis=-1)
    one = xp.ones_like(top)
    safe = xp.where(top > 0, top, one)

    def flat(d: float) -> Array:
        # κ d / (κ + d/2 + √(κ² + d²/4)), halved so that nothing overflows.
        half, rest = 0.5 * safe, 0.25 * d * one
        large, small = xp.maximum(half, rest), xp.minimum(half, rest)
        return safe * (0.5 * d / (half + rest + large * xp.sqrt(1 + (small / large) ** 2)))

    low, high = flat(1.0), flat(float(kappa.shape[-1]))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        t = middle[..., None]
        part = 1 - t / xp.where(kappa > t, kappa, t)
        pull = xp.sum(part / (1 + part), axis=-1)
        low, high = xp.where(pull > middle, middle, low), xp.where(pull > middle, high, middle)
    return xp.where(top > 0, high, xp.zeros_like(high))


def _log_capacity(xp: Any, kappa: Array) -> Array:
    # The value at the minimiser has the same gradient with t held fixed.
    level = _level(xp, _constant(kappa))
    used = xp.where(level > 0, level, xp.ones_like(level))
    t = used[..., None]
    share = t / xp.where(kappa > t, kappa, t)
    # With ρ = t/κ the term is ½ log(1 + (1 − ρ)²/(ρ(2 − ρ))), accurate next to 1.
    terms = 0.5 * xp.log1p((1 - share) * (1 - share) / (share * (2 - share)))
    return xp.where(level > 0, level + xp.sum(terms, axis=-1), xp.zeros_like(level))


def _constant(value: Array) -> Array:
    """The value without its gradient, in libraries that differentiate."""
    if hasattr(value, "detach"):
        return value.detach()
    if array_api_compat.is_jax_array(value):
        import jax

        return jax.lax.stop_gradient(value)
    return value
