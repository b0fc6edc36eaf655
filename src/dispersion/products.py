"""The largest product of each query with any key, without forming all products.

Keys are sorted by a scaled norm, queries meet them in that order, and a query drops out once
Cauchy–Schwarz proves that no later key can exceed what it has found. On token embeddings that
leaves a small share of the products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

# Outweighs the rounding of two scaled norms and their product up to 2**14 columns.
_UP = 1 + 2.0**-36
BLOCK = 2048
FIRST_CHUNK, LARGEST_CHUNK = 64, 8192


def largest_products(
    queries: Vector, keys: Vector, *, block: int = BLOCK
) -> tuple[Vector, NDArray[np.intp]]:
    """max_b ⟨q_a, k_b⟩ for every query a, and the b that reaches it.

    The value is the float64 product of that pair; every other key's exact product is at most this
    value plus the rounding of a product, γ·‖q_a‖·‖k_b‖.

    Args:
        queries: shape (n, r).
        keys: shape (m, r), m ≥ 1.
        block: queries treated at once.

    Returns:
        Values and indices, both of shape (n,).

    """
    scale = _scale(queries, keys)
    reach = np.sqrt(np.einsum("ij,ij,j->i", keys, keys, scale**2))
    order = np.argsort(-reach, kind="stable")
    sorted_keys, sorted_reach = keys[order], reach[order]
    values = np.full(len(queries), -np.inf)
    indices = np.zeros(len(queries), dtype=np.intp)
    for start in range(0, len(queries), block):
        part = slice(start, start + block)
        best, place = _block(queries[part], scale, sorted_keys, sorted_reach)
        values[part], indices[part] = best, order[place]
    return values, indices


def _block(
    queries: Vector, scale: Vector, keys: Vector, reach: Vector
) -> tuple[Vector, NDArray[np.intp]]:
    scaled = queries / scale
    size = np.sqrt(np.einsum("ij,ij->i", scaled, scaled)) * _UP
    best = np.full(len(queries), -np.inf)
    place = np.zeros(len(queries), dtype=np.intp)
    active = np.arange(len(queries))
    at, chunk = 0, FIRST_CHUNK
    while at < len(keys):
        active = active[size[active] * reach[at] * _UP >= best[active]]
        if len(active) == 0:
            break
        products = queries[active] @ keys[at : at + chunk].T
        top = np.argmax(products, axis=1)
        value = products[np.arange(len(active)), top]
        better = value > best[active]
        chosen = active[better]
        best[chosen], place[chosen] = value[better], at + top[better]
        at += chunk
        chunk = min(2 * chunk, LARGEST_CHUNK)
    return best, place


def _scale(queries: Vector, keys: Vector) -> Vector:
    """One positive factor per column that evens out both sides' share of a product."""
    q, k = (np.einsum("ij,ij->j", side, side) / len(side) for side in (queries, keys))
    usable = (q > 0) & (k > 0)
    return np.asarray((np.where(usable, q, 1.0) / np.where(usable, k, 1.0)) ** 0.25)
