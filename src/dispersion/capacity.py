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

import numpy as np

from dispersion._arrays import Array, prepare

__all__ = ["any_token_ceiling", "capacity", "log_capacity", "simplex_ceiling", "water_level"]

_BISECTIONS = 64


def log_capacity(singular_values: Array) -> Any:
    """The logarithm of a head's capacity N, in nats. **upper** (T13).

    log N = min over t > 0 of  t + ½ Σ_{κ_i > t} log((κ_i/t)² / (2κ_i/t − 1)); 0 where all are 0.
    N itself overflows for real heads. Never above κ_1; increasing in every κ_i; differentiable.

    Args:
        singular_values: shape (..., r), at least 0, in any order, the logit scale included.

    Raises:
        ArgumentError: a value is negative, infinite or nan.
    """
    xp, (kappa,), finish = prepare(singular_values=_array(singular_values))
    return _scalar(finish, singular_values)(_log_capacity(xp, kappa))


def capacity(singular_values: Array) -> Any:
    """N of `log_capacity`; inf where it overflows. **upper** (T13). Raises as `log_capacity`."""
    xp, (kappa,), finish = prepare(singular_values=_array(singular_values))
    with np.errstate(over="ignore"):
        return _scalar(finish, singular_values)(xp.exp(_log_capacity(xp, kappa)))


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
        singular_values: shape (..., r), the logit scale included.

    Raises:
        ArgumentError: n < 1, or a value is negative, infinite or nan.
    """
    scalar = isinstance(n, (int, float)) and isinstance(singular_values, (list, tuple))
    xp, (n, kappa), finish = prepare(n=n, singular_values=_array(singular_values))
    share = xp.exp(xp.minimum(_log_capacity(xp, kappa) - xp.log(n), xp.zeros_like(n)))
    result = xp.minimum(share, _simplex(xp, n, xp.max(kappa, axis=-1)))
    return float(result) if scalar else finish(result)


def water_level(singular_values: Array) -> Any:
    """The minimising t of T13, the root of t = Σ_{κ_i > t} (κ_i − t)/(2κ_i − t).

    Raises as `log_capacity`.
    """
    xp, (kappa,), finish = prepare(singular_values=_array(singular_values))
    return _scalar(finish, singular_values)(_level(xp, kappa))


def _array(values: Array) -> Array:
    return np.asarray(values, dtype=np.float64) if isinstance(values, (list, tuple)) else values


def _scalar(finish: Any, values: Array) -> Any:
    return float if isinstance(values, (list, tuple)) else finish


def _simplex(xp: Any, n: Array, kappa: Array) -> Array:
    more = xp.maximum(n - 1, xp.ones_like(n) * xp.finfo(n.dtype).eps)
    return xp.where(n > 1, 1 / (1 + more * xp.exp(-kappa * n / more)), xp.ones_like(n))


def _level(xp: Any, kappa: Array) -> Array:
    """The minimiser t by bisection, between the roots for one and for r values equal to κ_1."""
    top = xp.max(kappa, axis=-1)
    safe = xp.where(top > 0, top, xp.ones_like(top))

    def flat(d: float) -> Array:
        return safe * d / (safe + d / 2 + xp.sqrt(safe * safe + d * d / 4))

    low, high = flat(1.0), flat(float(kappa.shape[-1]))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        t = middle[..., None]
        over = kappa > t
        size = xp.where(over, kappa, t)
        pull = xp.sum((size - t) / (2 * size - t), axis=-1)
        low, high = xp.where(pull > middle, middle, low), xp.where(pull > middle, high, middle)
    return xp.where(top > 0, high, xp.zeros_like(high))


def _log_capacity(xp: Any, kappa: Array) -> Array:
    # The value at the minimiser has the same gradient with t held fixed.
    level = _constant(_level(xp, kappa))
    used = xp.where(level > 0, level, xp.ones_like(level))
    t = used[..., None]
    over = kappa > t
    x = xp.where(over, kappa, t) / t
    # x²/(2x − 1) = 1 + (x − 1)²/(2x − 1), accurate next to 1.
    terms = 0.5 * xp.log1p((x - 1) ** 2 / (2 * x - 1))
    return xp.where(level > 0, level + xp.sum(terms, axis=-1), xp.zeros_like(level))


def _constant(value: Array) -> Array:
    """The value without its gradient, in libraries that differentiate."""
    if hasattr(value, "detach"):
        return value.detach()
    import sys

    jax = sys.modules.get("jax")
    return jax.lax.stop_gradient(value) if jax is not None else value
