"""Where each head's rows lie in one fused projection of queries, keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Fused:
    """Each head's first output, for queries and for keys, and the number of all outputs."""

    query: tuple[int, ...]
    key: tuple[int, ...]
    outputs: int


if TYPE_CHECKING:
    Layout = Callable[[int, int, int], Fused]  # of query heads, key heads and head_dim


def stacked(heads: int, key_heads: int, head_dim: int) -> Fused:
    """All queries, then all keys, then all values."""
    starts = tuple(range(0, (heads + key_heads) * head_dim, head_dim))
    return Fused(starts[:heads], starts[heads:], (heads + 2 * key_heads) * head_dim)


def grouped(heads: int, key_heads: int, head_dim: int) -> Fused:
    """For each key head the queries that read it, then its key, then its value."""
    shared = heads // key_heads
    size = (shared + 2) * head_dim
    query = (g * size + h * head_dim for g in range(key_heads) for h in range(shared))
    key = (g * size + shared * head_dim for g in range(key_heads))
    return Fused(tuple(query), tuple(key), key_heads * size)


def in_four_parts(heads: int, key_heads: int, head_dim: int) -> Fused:
    """Four parts, each with the queries, values and keys (in this order) of a quarter of the heads.

    Raises:
        UnsupportedError: a head would lie across two parts.
    """
    if heads % 4 or key_heads != heads:
        msg = f"the number of heads must be a multiple of 4 for this model. Got {heads}."
        raise UnsupportedError(msg)
    quarter = heads // 4 * head_dim
    query = [part * 3 * quarter + head for part in range(4) for head in range(0, quarter, head_dim)]
    return Fused(tuple(query), tuple(start + 2 * quarter for start in query), 12 * quarter)
