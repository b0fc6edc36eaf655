"""Matrix functions with first derivatives that never become nan: the numerics of `training`.

Eigenvectors, weights and scales are found without gradients; the results are then written as
functions linear in the Gram matrices around them. Values and first derivatives are those of the
functions themselves (a derivative of a minimum or maximum is the derivative at a fixed optimiser),
with a subgradient where singular values coincide and 0 where they vanish. Arrays have leading axes
for heads, are NumPy's, JAX's or torch's, and are never larger than (heads, head_dim, width).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import array_api_compat

from dispersion.capacity import water_level

if TYPE_CHECKING:
    from collections.abc import Callable

    from dispersion._arrays import Array

# k of the power 2^k + 1 in each fixed-point step: ever sharper stand-ins for λ_max.
_SCHEDULE = (3,) * 6 + (5,) * 8 + (8,) * 16
_SHARPEST = _SCHEDULE[-1]


def frozen(value: Array) -> Array:
    """The value without its gradient, in libraries that differentiate."""
    if array_api_compat.is_torch_array(value):
        return value.detach()
    if array_api_compat.is_jax_array(value):
        return sys.modules["jax"].lax.stop_gradient(value)
    return value


def matmul(xp: Any, a: Array, b: Array) -> Array:
    """A @ b at the full precision of the dtype: accelerators round more by default."""
    if array_api_compat.is_jax_array(a):
        return xp.matmul(a, b, precision="highest")
    return xp.matmul(a, b)


def root(xp: Any, value: Array) -> Array:
    """The square root, with derivative 0 rather than inf at 0 and below."""
    positive = value > 0
    return xp.where(positive, xp.sqrt(xp.where(positive, value, 1.0)), 0.0)


def gram(xp: Any, matrix: Array) -> tuple[Array, Array]:
    """M Mᵀ, shape (heads, d, d), of M = matrix / size, and the sizes, shape (heads,).

    Sizes are the largest entries: tiny and huge weights keep clear of under- and overflow.
    """
    size = frozen(xp.max(xp.abs(matrix), axis=(-2, -1)))
    size = xp.where(size > 0, size, 1.0)
    scaled = matrix / size[..., None, None]
    return matmul(xp, scaled, xp.matrix_transpose(scaled)), size


def joint_values(xp: Any, query: Array, key: Array) -> Array:
    """The singular values of AᵀC from the Gram matrices of A and C, shape (heads, d)."""
    g, h = frozen(query), frozen(key)
    values, vectors = xp.linalg.eigh(h)
    factor = vectors * root(xp, values)[..., None, :]
    middle = matmul(xp, xp.matrix_transpose(factor), matmul(xp, g, factor))
    squares, right = xp.linalg.eigh(middle)
    kappa = root(xp, squares)
    # Values lost in the rounding of the squares have no direction to move in.
    lost = h.shape[-1] * xp.finfo(h.dtype).eps
    seen = squares > lost * xp.max(squares, axis=-1, keepdims=True)
    safe = xp.where(seen, kappa, 1.0)
    z = matmul(xp, factor, right) / xp.sqrt(safe)[..., None, :]
    y = matmul(xp, g, z) / safe[..., None, :]
    # κ_i = ½(zᵀ AAᵀ z + yᵀ CCᵀ y) at fixed z, y, whose derivatives are those of κ_i.
    half = 0.5 * (_forms(xp, query, z) + _forms(xp, key, y))
    return kappa + xp.where(seen, half - frozen(half), 0.0)


def scaled_values(xp: Any, query: Array, key: Array, scales: Array) -> Array:
    """Singular values of Aᵀ T^½, T = S⁻²·‖S C‖² a cover of the keys that rotations leave alone."""
    g = query / (scales[..., :, None] * scales[..., None, :])
    _, vectors = xp.linalg.eigh(frozen(g))
    return root(xp, _forms(xp, g, vectors) * _scaled_norm(xp, key, scales)[..., None])


def scaled_product(xp: Any, query: Array, key: Array, scales: Array) -> Array:
    """‖S⁻¹A‖·‖SC‖ in smooth norms no smaller than the true ones, shape (heads,)."""
    return root(xp, _scaled_norm(xp, query, 1 / scales) * _scaled_norm(xp, key, scales))


def spread_scales(xp: Any, query: Array, key: Array, groups: Array) -> Array:
    """Scales S, shape (heads, d), that nearly minimise ‖S⁻¹A‖·‖SC‖. Without gradients.

    Args:
        xp: the array library.
        query, key: Gram matrices.
        groups: shape (d, d), 1 where two coordinates share a scale, else 0.
    """
    query, key = frozen(query), frozen(key)
    a, c = (matmul(xp, _diagonal(xp, m), groups) for m in (query, key))
    start = 0.25 * (xp.log(_floored(xp, a)) - xp.log(_floored(xp, c)))

    def shares(log: Array, squarings: Any) -> Array:
        return _trace_shares(xp, _scaled(query, xp.exp(-log)), squarings)

    return _fixed_point(xp, start, shares, key, groups)


def capacity_scales(xp: Any, query: Array, key: Array, groups: Array, factor: Array) -> Array:
    """Scales that nearly minimise the capacity of `scaled_values` times factor. No gradients.

    Args:
        xp: the array library.
        query, key, groups: as in `spread_scales`.
        factor: shape (heads,) or (), what the singular values still lack.
    """
    query, key, factor = frozen(query), frozen(key), frozen(factor)
    start = -0.5 * xp.log(_floored(xp, matmul(xp, _diagonal(xp, key), groups)))

    def shares(log: Array, squarings: Any) -> Array:  # noqa: ARG001 - these need no stand-in
        squares, vectors = xp.linalg.eigh(_scaled(query, xp.exp(-log)))
        norm = _scaled_norm(xp, key, xp.exp(log))[..., None]
        kappa = root(xp, squares * norm) * (xp.ones_like(norm[..., 0]) * factor)[..., None]
        t = water_level(kappa)[..., None]
        over = kappa > t
        used = xp.where(over, kappa, 1.0)
        # κ·d log N/dκ = 1 − κ/(2κ − t), by which a coordinate matters to the capacity.
        weight = xp.where(over, 1 - used / (2 * used - xp.where(over, t, 0.0)), 0.0)
        total = xp.sum(weight, axis=-1, keepdims=True)
        weight = weight / xp.where(total > 0, total, 1.0)
        return xp.sum(vectors * vectors * weight[..., None, :], axis=-1)

    return _fixed_point(xp, start, shares, key, groups)


def balance(xp: Any, query: Array, key: Array) -> tuple[Array, Array]:
    """T and T⁻ᵀ with T query Tᵀ ≈ T⁻ᵀ key T⁻¹, both diagonal. Without gradients."""
    values, vectors = xp.linalg.eigh(frozen(query))
    values = xp.sqrt(_floored(xp, values))
    factor = vectors * values[..., None, :]
    squares, turn = xp.linalg.eigh(
        matmul(xp, xp.matrix_transpose(factor), matmul(xp, frozen(key), factor))
    )
    quarter = _floored(xp, squares)[..., :, None] ** 0.25
    turned = xp.matrix_transpose(turn)
    forward = quarter * matmul(xp, turned, xp.matrix_transpose(vectors / values[..., None, :]))
    backward = matmul(xp, turned, xp.matrix_transpose(factor)) / quarter
    return forward, backward


def _fixed_point(
    xp: Any, start: Array, query_shares: Callable[[Array, Any], Array], key: Array, groups: Array
) -> Array:
    """Balance what each coordinate contributes to both sides: at the optimum they are equal."""
    schedule = xp.asarray(_SCHEDULE) if array_api_compat.is_jax_array(start) else _SCHEDULE

    def step(index: Any, log: Array) -> Array:
        squarings = schedule[index]
        q = matmul(xp, query_shares(log, squarings), groups)
        k = matmul(xp, _trace_shares(xp, _scaled(key, xp.exp(log)), squarings), groups)
        ratio = xp.log(_floored(xp, q)) - xp.log(_floored(xp, k))
        return log + ratio / (4 * (2.0**squarings + 1))

    return xp.exp(_repeated(step, len(_SCHEDULE), start))


def _repeated(step: Callable[[Any, Any], Any], times: Any, value: Any) -> Any:
    """Apply value = step(i, value) for i = 0, 1, …; JAX compiles one step and may trace `times`."""
    first = value[0] if isinstance(value, tuple) else value
    if array_api_compat.is_jax_array(first):
        return sys.modules["jax"].lax.fori_loop(0, times, step, value)
    for index in range(times):
        value = step(index, value)
    return value


def _scaled_norm(xp: Any, matrix: Array, scales: Array) -> Array:
    """(tr Mᵖ)^(1/p) of M = S matrix S: at least its λ_max, at most head_dim^(1/p) times it."""
    scaled = _scaled(matrix, scales)
    high, log = _power(xp, frozen(scaled), _SHARPEST)
    inner = _inner(xp, high, frozen(scaled) / _trace(xp, frozen(scaled)))
    power = 2**_SHARPEST + 1
    # tr(W M) with the derivative W = Mᵖ⁻¹/(tr Mᵖ)^((p−1)/p) held fixed.
    inner = xp.where(inner > 0, inner, 1.0)
    weight = xp.exp((log - (power - 1) * xp.log(inner)) / power)[..., None, None] * high
    return _inner(xp, weight, scaled)


def _trace_shares(xp: Any, matrix: Array, squarings: Any) -> Array:
    """The diagonal of Mᵖ/tr Mᵖ, p = 2^squarings + 1: the coordinates' shares in the norm."""
    high, _ = _power(xp, matrix, squarings)
    row = xp.sum(high * matrix, axis=-1)
    total = xp.sum(row, axis=-1, keepdims=True)
    return row / xp.where(total > 0, total, 1.0)


def _power(xp: Any, matrix: Array, squarings: Any) -> tuple[Array, Array]:
    """(M/tr M)^(2^squarings), divided by its trace, and the logarithm of that trace."""

    def square(_: Any, value: tuple[Array, Array]) -> tuple[Array, Array]:
        high, log = value
        high = matmul(xp, high, high)
        trace = _trace(xp, high)
        return high / trace, 2 * log + xp.log(trace[..., 0, 0])

    start = matrix / _trace(xp, matrix)
    found: tuple[Array, Array] = _repeated(square, squarings, (start, 0 * start[..., 0, 0]))
    return found


def _inner(xp: Any, a: Array, b: Array) -> Array:
    return xp.sum(a * b, axis=(-2, -1))


def _trace(xp: Any, matrix: Array) -> Array:
    total = xp.sum(_diagonal(xp, matrix), axis=-1)[..., None, None]
    return xp.where(total > 0, total, 1.0)


def _diagonal(xp: Any, matrix: Array) -> Array:
    return xp.linalg.diagonal(matrix)


def _scaled(matrix: Array, scales: Array) -> Array:
    return matrix * scales[..., :, None] * scales[..., None, :]


def _floored(xp: Any, values: Array) -> Array:
    """Values raised to a small fraction of the largest, or to 1 where all are 0."""
    largest = xp.max(values, axis=-1, keepdims=True)
    floor = 16 * xp.finfo(values.dtype).eps * xp.where(largest > 0, largest, 1.0)
    return xp.where(largest > 0, xp.where(values > floor, values, floor), 1.0)


def _forms(xp: Any, matrix: Array, vectors: Array) -> Array:
    """The quadratic forms x_iᵀ M x_i of the columns x_i, shape (heads, d)."""
    return xp.sum(vectors * matmul(xp, matrix, vectors), axis=-2)
