"""Numbers in, numbers out: what `row` and `entropy` share, for every array library.

Python numbers are computed by NumPy in float64 and come back as floats. Arrays keep their library
and their floating dtype (half precision is raised to float32, integers to the library's default).
Values are checked where they can be read; JAX tracers are passed through unchecked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import array_api_compat
import numpy as np

from dispersion.errors import ArgumentError

Array: TypeAlias = Any
"""A float, an int or an array of any library that follows the array API standard."""

Finish: TypeAlias = Callable[[Array], Any]

RULES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "n": (
        lambda x: (x >= 1) & (x < np.inf),
        "must be at least 1 and finite: it counts the unmasked items of a row",
    ),
    "m": (lambda x: (x >= 0) & (x < np.inf), "must be between 0 and n: it counts items"),
    "items": (lambda x: (x >= 1) & (x < np.inf), "must be at least 1: it counts items"),
    "spread": (lambda x: x >= 0, "must be 0 or more: it is the largest logit minus the smallest"),
    "norm": (lambda x: x >= 0, "must be 0 or more: it is the 2-norm of the centred logits"),
    "coefficient": (lambda x: (x > 0) & (x < 1), "must lie strictly between 0 and 1"),
    "singular_values": (lambda x: (x >= 0) & (x < np.inf), "must be finite and 0 or more"),
    "temperature": (lambda x: (x > 0) & (x < np.inf), "must be positive and finite"),
    "cap": (
        lambda x: (x > 0) & (x < np.inf),
        "must be positive and finite: leave the cap out where there is none",
    ),
    "top": (lambda x: np.isfinite(x), "must be finite: it is the largest logit"),
    "level": (lambda x: np.isfinite(x), "must be finite: it is a logit"),
    "sink": (lambda x: x < np.inf, "must be below inf: -inf stands for no sink"),
    "scale": (lambda x: (x >= 0) & (x < np.inf), "must be 0 or more and finite"),
    "inverse_temperature": (lambda x: (x >= 0) & (x < np.inf), "must be 0 or more and finite"),
    "logits": (lambda x: x < np.inf, "must not be nan or inf: -inf masks an item"),
}


def readable(value: Array) -> Any:
    """The value as NumPy sees it, or None where it cannot be read now (a JAX tracer)."""
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(value, jax.core.Tracer):
        return None
    if isinstance(value, float):
        return value
    if isinstance(value, int):
        return value if abs(value) <= sys.float_info.max else np.inf
    if array_api_compat.is_torch_array(value):
        try:
            return value.detach().cpu().numpy()
        except RuntimeError:  # inside torch.func transforms
            return None
    if array_api_compat.is_dask_array(value):
        return None
    return np.asarray(value)


def check(name: str, value: Array) -> None:
    """Raise ArgumentError where a readable value breaks the rule of its name."""
    seen = readable(value)
    if seen is None:
        return
    rule, text = RULES[name]
    good = np.asarray(rule(seen))
    if not good.all():
        bad = seen if good.ndim == 0 else seen[~good].flat[0]
        msg = f"{name} {text}. Got {bad}."
        raise ArgumentError(msg)


def check_at_most(name: str, value: Array, limit_name: str, limit: Array) -> None:
    """Raise ArgumentError where value > limit and both can be read."""
    seen, top = readable(value), readable(limit)
    if seen is None or top is None:
        return
    bad = np.asarray(seen > top)
    if bad.any():
        pair = [np.broadcast_to(x, bad.shape)[bad].flat[0] for x in (seen, top)]
        msg = f"{name} must not exceed {limit_name}. Got {name}={pair[0]}, {limit_name}={pair[1]}."
        raise ArgumentError(msg)


def prepare(**arguments: Array) -> tuple[Any, list[Array], Finish]:
    """Check arguments and bring them to one array library and one floating dtype.

    Returns the library, the arrays in the order given, and a function that turns a result into
    what the caller expects (a float where every argument was a Python number).
    """
    for name, value in arguments.items():
        if not (isinstance(value, (int, float)) or array_api_compat.is_array_api_obj(value)):
            msg = f"{name} must be a number or an array. Got {type(value).__name__}."
            raise ArgumentError(msg)
        check(name, value)
    arrays = [x for x in arguments.values() if not isinstance(x, (int, float))]
    # float is tested first: NumPy's float64 scalar is one, and is welcome as a Python number.
    foreign = [x for x in arrays if not array_api_compat.is_numpy_array(x)]
    if not arrays:
        values = [np.asarray(float(x)) for x in arguments.values()]
        return np, values, float
    xp = array_api_compat.array_namespace(*(foreign or arrays))
    dtype = _floating(xp, foreign or arrays)
    device = array_api_compat.device((foreign or arrays)[0]) if foreign else None
    keywords = {} if device is None or _is_traced(foreign) else {"device": device}

    def convert(value: Array) -> Array:
        if isinstance(value, (int, float)):
            return xp.asarray(float(value), dtype=dtype, **keywords)
        if foreign and array_api_compat.is_numpy_array(value):
            return xp.asarray(value, dtype=dtype, **keywords)
        return xp.astype(value, dtype)

    return xp, [convert(x) for x in arguments.values()], lambda result: result


def _is_traced(values: list[Array]) -> bool:
    # A JAX array's device is chosen by JAX; a tracer has none to ask for.
    return any(array_api_compat.is_jax_array(x) for x in values)


def _floating(xp: Any, arrays: list[Array]) -> Any:
    """The dtype to compute in: the arrays' own, at least float32."""
    floats = [x.dtype for x in arrays if xp.isdtype(x.dtype, "real floating")]
    if not floats:
        return xp.asarray(0.0).dtype
    dtype = xp.result_type(*floats)
    return dtype if xp.finfo(dtype).bits >= 32 else xp.float32


def scaled(xp: Any, value: Array, divisor: Array) -> Array:
    """Divide, for value in [0, inf], with gradient 0 rather than nan at inf."""
    infinite = xp.isinf(value)
    return xp.where(infinite, value, xp.where(infinite, 0.0, value) / divisor)


def decay(xp: Any, spread: Array) -> tuple[Array, Array]:
    """Two factors whose product is e^-spread, neither of which underflows before it matters."""
    # e^-spread itself loses digits below the smallest normal number; its square root does not.
    far = spread > -0.9 * float(np.log(float(xp.finfo(spread.dtype).smallest_normal)))
    first = xp.exp(-xp.where(far, 0.5 * spread, spread))
    return first, xp.where(far, first, 1.0)


def difference(xp: Any, a: Array, b: Array) -> tuple[Array, Array]:
    """Return a - b as a rounded difference and its rounding error (Knuth's two-sum)."""
    d = a - b
    finite = xp.isfinite(d)
    x, y, s = (xp.where(finite, v, 0.0) for v in (a, b, d))
    back = s - x
    return d, (x - (s - back)) - (y + back)


def product_less(xp: Any, a: Array, b: Array, c: Array) -> Array:
    """a·b - c with the rounding error of the product put back (Dekker's two-product)."""
    bits = {64: 27, 32: 12}[xp.finfo(a.dtype).bits]
    p = a * b
    ah, bh = _high(a, bits), _high(b, bits)
    al, bl = a - ah, b - bh
    error = ((ah * bh - p) + ah * bl + al * bh) + al * bl
    return (p - c) + xp.where(xp.isfinite(error), error, 0.0)


def _high(x: Array, bits: int) -> Array:
    big = x * float(2**bits + 1)
    return big - (big - x)
