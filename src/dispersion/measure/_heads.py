"""One head: means over all of its queries, and the chosen rows with their gaps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dispersion.measure import _sweep
from dispersion.measure._sweep import Keys, Row, Rules

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dispersion.measure.reading import Marks, Shapes

    Array = Any
    Floats = NDArray[np.float64]

ELEMENTS = 2**20  # logits of whole rows held at once
UNIT = 2.0**-24
KEPT = tuple(name for name in Row._fields if name != "top")


@dataclass(frozen=True)
class Layer:
    """What all heads of a layer share."""

    rules: Rules
    sizes: Shapes
    begin: int
    scale: float
    sinks: NDArray[np.float32]
    key_seen: NDArray[np.bool_] | None
    mask: NDArray[np.bool_] | None
    marks: Marks
    block: int


@dataclass(frozen=True)
class HeadFound:
    """What was measured of one head; see `LayerStatistics`."""

    rows: int
    mean: dict[str, Floats]
    largest: dict[str, Floats]
    chosen: dict[str, Floats]
    counts: Floats
    scales: Floats
    token_means: Floats
    errors: float


class Sums(NamedTuple):
    """Over one block of queries: sums and largest values, and how many rows they are of."""

    total: Row
    largest: Row
    rows: Array
    odds: Array  # rows whose log odds are finite
    later: Array  # (tokens,): rows at or behind each first token


def measure(
    layer: Layer, q: Array, k: Array, head: int, chosen: NDArray[np.int64], gaps: Floats
) -> HeadFound:
    """Statistics of one head; queries and keys that are no JAX arrays are copied head by head."""
    group = head // layer.sizes.group
    query, key, places = q, k, (head, group)
    if not isinstance(q, jax.Array):
        query, places = _array(q[head : head + 1]), (0, places[1])
    if not isinstance(k, jax.Array):
        key, places = _array(k[group : group + 1]), (places[0], 0)
    seen = np.ones(layer.sizes.keys, bool) if layer.key_seen is None else layer.key_seen
    keys = Keys(
        key=key,
        head=jnp.int32(places[1]),
        scale=jnp.float32(layer.scale),
        sink=jnp.asarray(layer.sinks[head]),
        seen_before=jnp.asarray(np.concatenate([[0], np.cumsum(seen)]).astype(np.int32)),
        hidden=None if layer.key_seen is None else jnp.asarray(~layer.key_seen),
        mask=None if layer.mask is None else jnp.asarray(layer.mask),
        marks=jnp.asarray(layer.marks.table),
    )
    tokens = jnp.asarray(layer.marks.tokens.astype(np.int32))
    size = min(layer.block, layer.sizes.queries)
    sums, longest = _average(
        layer.rules, size, layer.begin, query, jnp.int32(places[0]), tokens, keys
    )
    rows, odds = (int(np.sum(np.asarray(x), dtype=np.int64)) for x in (sums.rows, sums.odds))
    total = {name: _sum(getattr(sums.total, name)) for name in KEPT}
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = {n: x / (odds if n == "log_odds" else rows) for n, x in total.items()}
        own = len(layer.marks.names)
        token_means = total["mass"][own:] / _sum(sums.later)
    largest = {n: np.max(np.asarray(getattr(sums.largest, n), np.float64), 0) for n in KEPT}
    alone, counts, scales = _chosen(layer, query, places[0], keys, chosen, gaps)
    product = float(longest) * layer.scale
    bend = 0.0 if layer.rules.soft_cap is None else 8 * UNIT * layer.rules.soft_cap
    return HeadFound(
        rows=rows,
        mean=mean,
        largest=largest,
        chosen=alone,
        counts=counts,
        scales=scales,
        token_means=token_means,
        errors=(layer.sizes.head_dim + 6) * UNIT * product + bend,
    )


def _array(value: Any) -> Array:
    array = np.asarray(value)
    return jnp.asarray(array.astype(np.float32) if array.dtype == np.float64 else array)


def _sum(blocks: Array) -> Floats:
    total: Floats = np.sum(np.asarray(blocks), axis=0, dtype=np.float64)
    return total


@partial(jax.jit, static_argnums=(0, 1, 2))
def _average(
    rules: Rules, size: int, begin: int, q: Array, head: Array, tokens: Array, keys: Keys
) -> tuple[Sums, Array]:
    """Sums over every block of queries, and the largest ‖q‖ times the largest ‖k‖."""
    n = q.shape[1]

    def one(index: Array) -> tuple[Sums, Array]:
        at = jnp.minimum(index * size, n - size)  # the last block overlaps the one before
        rows = at + jnp.arange(size, dtype=jnp.int32)
        query = lax.dynamic_slice(q, (head, at, 0), (1, size, q.shape[2]))[0].astype(jnp.float32)
        row = _sweep.sweep(rules, query, begin + rows, rows, keys)
        counted = (rows >= index * size) & (row.items > 0)
        finite = counted & jnp.isfinite(row.log_odds)

        def over(value: Array, use: Array, empty: float) -> Array:
            return jnp.where(use.reshape(use.shape + (1,) * (value.ndim - 1)), value, empty)

        def fold(empty: float, how: Any) -> Row:
            kept = {x: finite if x == "log_odds" else counted for x in Row._fields}
            return Row(**{x: how(over(getattr(row, x), kept[x], empty), 0) for x in Row._fields})

        later = counted[:, None] & (begin + rows[:, None] >= tokens[None, :] * rules.causal)
        sums = Sums(
            total=fold(0, jnp.sum),
            largest=fold(-jnp.inf, jnp.max)._replace(
                items=jnp.max(jnp.where(counted, row.items, 0))
            ),
            rows=jnp.sum(counted),
            odds=jnp.sum(finite),
            later=jnp.sum(later, 0),
        )
        return sums, jnp.max(jnp.sum(query * query, 1))

    sums, lengths = lax.map(one, jnp.arange(-(-n // size), dtype=jnp.int32))
    keys_size = min(rules.key_block, keys.key.shape[1])

    def key_length(index: Array) -> Array:
        at = jnp.minimum(index * keys_size, keys.key.shape[1] - keys_size)
        shape = (1, keys_size, keys.key.shape[2])
        block = lax.dynamic_slice(keys.key, (keys.head, at, 0), shape).astype(jnp.float32)
        return jnp.max(jnp.sum(block * block, 2))

    key_lengths = lax.map(key_length, jnp.arange(-(-keys.key.shape[1] // keys_size), dtype=jnp.int32))
    return sums, jnp.sqrt(jnp.max(lengths)) * jnp.sqrt(jnp.max(key_lengths))


@partial(jax.jit, static_argnums=0)
def _rows(rules: Rules, query: Array, positions: Array, rows: Array, keys: Keys) -> Row:
    return _sweep.sweep(rules, query, positions, rows, keys)


@partial(jax.jit, static_argnums=0)
def _gaps(rules: Rules, query: Array, positions: Array, rows: Array, keys: Keys) -> Array:
    """Shape (rows, n): how far each key lies below the row's top; inf where hidden."""
    n = keys.key.shape[1]
    size = min(rules.key_block, n)

    def fill(index: Array, logit: Array) -> Array:
        at = jnp.minimum(index * size, n - size)
        shape = (1, size, keys.key.shape[2])
        key = lax.dynamic_slice(keys.key, (keys.head, at, 0), shape)[0].astype(jnp.float32)
        part = _sweep.logits(rules, query, key, keys.scale)
        return lax.dynamic_update_slice(logit, part, (jnp.int32(0), at))

    empty = jnp.zeros((query.shape[0], n), jnp.float32)
    logit = lax.fori_loop(jnp.int32(0), jnp.int32(-(-n // size)), fill, empty)
    seen = _sweep.visible(rules, positions, jnp.arange(n, dtype=jnp.int32))
    if keys.hidden is not None:
        seen &= ~keys.hidden
    if keys.mask is not None:
        seen &= keys.mask[rows]
    top = jnp.max(jnp.where(seen, logit, -jnp.inf), 1, keepdims=True)
    return jnp.where(seen, top - logit, jnp.inf)


def _chosen(
    layer: Layer, q: Array, head: int, keys: Keys, chosen: NDArray[np.int64], gaps: Floats
) -> tuple[dict[str, Floats], Floats, Floats]:
    """Rows one by one: their statistics, keys within each gap, accumulation scales."""
    parts: list[dict[str, Floats]] = []
    counts, scales = [], []
    few = max(1, min(len(chosen), 64, ELEMENTS // layer.sizes.keys))
    padded = np.concatenate([chosen, np.repeat(chosen[-1:], -len(chosen) % few)])
    for start in range(0, len(padded), few):
        rows = jnp.asarray(padded[start : start + few].astype(np.int32))
        query = q[head, rows].astype(jnp.float32)
        arguments = (layer.rules, query, layer.begin + rows, rows, keys)
        row = _rows(*arguments)
        parts.append({name: np.asarray(getattr(row, name), np.float64) for name in KEPT})
        ordered = np.sort(np.asarray(_gaps(*arguments)), axis=1)
        counts.append(np.stack([np.searchsorted(x, gaps, side="right") for x in ordered]))
        scales.append(accumulation_scale(ordered))
    if not parts:
        shapes = {"mass": (0, keys.marks.shape[1]), "profile": (0, layer.rules.bins)}
        empty = {name: np.zeros(shapes.get(name, (0,))) for name in KEPT}
        return empty, np.zeros((0, len(gaps))), np.zeros(0)
    n = len(chosen)
    joined = {name: np.concatenate([part[name] for part in parts])[:n] for name in KEPT}
    return joined, np.concatenate(counts)[:n].astype(np.float64), np.concatenate(scales)[:n]


def accumulation_scale(ordered: NDArray[np.float32]) -> Floats:
    """Supremum over t > 0 of log N(t)/t for rows of ascending gaps, inf where hidden.

    N jumps at the gaps, so the supremum is the largest log k/gap_k.
    """
    known = np.isfinite(ordered[:, 1:])
    gap = np.where(known, ordered[:, 1:], np.inf).astype(np.float64)
    with np.errstate(divide="ignore"):
        ratio = np.log(np.arange(2, ordered.shape[1] + 1)) / gap
    scale: Floats = np.max(ratio, axis=1, initial=0.0)
    return np.where(np.isfinite(ordered[:, 0]), scale, np.nan)
