"""One head: its rows block by block, means over all, and the chosen ones with their gaps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

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
    Found = dict[str, Any]  # a float or an array of floats for each statistic

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
    soft_cap: float | None
    window: int | None
    sinks: NDArray[np.float32]
    key_seen: NDArray[np.bool_] | None
    mask: NDArray[np.bool_] | None
    marks: Marks
    block: int


@dataclass(frozen=True)
class HeadFound:
    """What was measured of one head; see `LayerStatistics`."""

    rows: int
    mean: Found
    largest: Found
    chosen: Found
    octaves: list[Octave]
    counts: Floats
    scales: Floats
    token_means: Floats
    errors: float


@dataclass
class Octave:
    """Sums over the rows with 2^index ≤ n < 2^(index+1) unmasked keys."""

    index: int
    rows: int
    log_items: float
    odds: int
    sums: Found

    def mean(self) -> Found:
        """Means over its rows; nan for log odds where no row's are finite."""
        return {
            name: total / self.rows
            if name != "log_odds"
            else (total / self.odds if self.odds else np.float64(np.nan))
            for name, total in self.sums.items()
        }


def measure(
    layer: Layer, q: Array, k: Array, head: int, chosen: NDArray[np.int64], gaps: Floats
) -> HeadFound:
    """Statistics of one head; queries and keys that are no JAX arrays are copied head by head."""
    query, keys, place = _inputs(layer, q, k, head)
    size = min(layer.block, layer.sizes.queries)
    averages = _Averages(layer)
    alone = {name: np.zeros(0) for name in KEPT}
    for start in range(0, layer.sizes.queries, size):
        at = min(start, layer.sizes.queries - size)  # the last block overlaps the one before
        row = _block(layer.rules, size, query, place, jnp.int32(at), jnp.int32(layer.begin), keys)
        found = {name: np.array(getattr(row, name)) for name in KEPT}
        for part in row:
            part.delete()  # else buffers of many blocks pile up until they are collected
        averages.add({name: value[start - at :] for name, value in found.items()}, start)
        here = np.flatnonzero((chosen >= start) & (chosen < start + size))
        for name, value in found.items():
            if alone[name].shape != (len(chosen), *value.shape[1:]):
                alone[name] = np.zeros((len(chosen), *value.shape[1:]))
            alone[name][here] = value[chosen[here] - at]
    counts, scales = _gap_counts(layer, query, place, keys, chosen, gaps)
    product = float(_longest(query, place)) * float(_longest(keys.key, keys.head)) * layer.scale
    bend = 0.0 if layer.soft_cap is None else 8 * UNIT * layer.soft_cap
    return HeadFound(
        rows=averages.rows,
        mean=averages.mean(),
        largest={name: averages.largest.get(name, np.float64(np.nan)) for name in KEPT},
        chosen=alone,
        octaves=averages.octaves(),
        counts=counts,
        scales=scales,
        token_means=averages.token_means(),
        errors=(layer.sizes.head_dim + 6) * UNIT * product + bend,
    )


class _Averages:
    """Sums in float64 over the rows that see a key, and the largest values."""

    def __init__(self, layer: Layer) -> None:
        self.rows = 0
        self.largest: Found = {}
        self._layer = layer
        self._sums: Found = {}
        self._odds = 0
        self._later = np.zeros(len(layer.marks.tokens))
        self._octaves: dict[int, Octave] = {}

    def add(self, found: dict[str, Any], start: int) -> None:
        """A block of rows, the first of which is query `start`."""
        counted = found["items"] > 0
        self.rows += int(counted.sum())
        positions = self._layer.begin + start + np.flatnonzero(counted)
        tokens = self._layer.marks.tokens * self._layer.rules.causal
        self._later += (positions[:, None] >= tokens[None, :]).sum(0)
        self._add_octaves(found, counted)
        for name, values in found.items():
            used = counted
            if name == "log_odds":
                used = np.isfinite(values)
                self._odds += int(used.sum())
            if not used.any():
                continue
            total = np.sum(values[used], axis=0, dtype=np.float64)
            most = np.max(values[used], axis=0).astype(np.float64)
            self._sums[name] = self._sums[name] + total if name in self._sums else total
            self.largest[name] = (
                np.maximum(self.largest[name], most) if name in self.largest else most
            )

    def _add_octaves(self, found: dict[str, Any], counted: NDArray[np.bool_]) -> None:
        octave = np.where(counted, np.frexp(found["items"].astype(np.float64))[1] - 1, -1)
        for index in np.unique(octave[counted]).tolist():
            here = octave == index
            known = here & np.isfinite(found["log_odds"])
            one = self._octaves.setdefault(index, Octave(index, 0, 0.0, 0, {}))
            one.rows += int(here.sum())
            one.log_items += float(np.log(found["items"][here]).sum())
            one.odds += int(known.sum())
            for name, values in found.items():
                used = known if name == "log_odds" else here
                total = np.sum(values[used], axis=0, dtype=np.float64)
                one.sums[name] = one.sums.get(name, 0.0) + total

    def octaves(self) -> list[Octave]:
        """By rising n."""
        return [self._octaves[index] for index in sorted(self._octaves)]

    def mean(self) -> Found:
        """Means; nan for log odds where no row's are finite."""
        return {
            name: self._sums[name] / (self._odds if name == "log_odds" else self.rows)
            if name in self._sums
            else np.float64(np.nan)
            for name in KEPT
        }

    def token_means(self) -> Floats:
        """Mean share of each first token over the rows at or behind it."""
        own = len(self._layer.marks.names)
        if not self.rows:
            return np.full(self._later.shape, np.nan)
        with np.errstate(invalid="ignore"):
            means: Floats = self._sums["mass"][own:] / self._later
        return means


def _inputs(layer: Layer, q: Array, k: Array, head: int) -> tuple[Array, Keys, Array]:
    """Queries, keys and the index of the head among the queries."""
    group = head // layer.sizes.group
    query, place = (q, head) if isinstance(q, jax.Array) else (_array(q[head : head + 1]), 0)
    key, shared = (k, group) if isinstance(k, jax.Array) else (_array(k[group : group + 1]), 0)
    seen = np.ones(layer.sizes.keys, bool) if layer.key_seen is None else layer.key_seen
    keys = Keys(
        key=key,
        head=jnp.int32(shared),
        scale=jnp.float32(layer.scale),
        sink=jnp.float32(layer.sinks[head]),
        window=jnp.int32(layer.window or 0),
        cap=jnp.float32(layer.soft_cap or 0.0),
        seen_before=jnp.asarray(np.concatenate([[0], np.cumsum(seen)]).astype(np.int32)),
        hidden=None if layer.key_seen is None else jnp.asarray(~layer.key_seen),
        mask=None if layer.mask is None else jnp.asarray(layer.mask),
        marks=jnp.asarray(layer.marks.table),
    )
    return query, keys, jnp.int32(place)


def _array(value: Any) -> Array:
    array = np.asarray(value)
    return jnp.asarray(array.astype(np.float32) if array.dtype == np.float64 else array)


@partial(jax.jit, static_argnums=(0, 1))
def _block(
    rules: Rules, size: int, q: Array, head: Array, at: Array, begin: Array, keys: Keys
) -> Row:
    rows = at + jnp.arange(size, dtype=jnp.int32)
    query = lax.dynamic_slice(q, (head, at, jnp.int32(0)), (1, size, q.shape[2]))[0]
    return _sweep.sweep(rules, query.astype(jnp.float32), begin + rows, rows, keys)


@jax.jit
def _longest(vectors: Array, head: Array) -> Array:
    """Largest 2-norm of one head's vectors."""
    one = lax.dynamic_index_in_dim(vectors, head, keepdims=False).astype(jnp.float32)
    return jnp.sqrt(jnp.max(jnp.sum(one * one, 1)))


@partial(jax.jit, static_argnums=0)
def _gaps(rules: Rules, q: Array, head: Array, rows: Array, begin: Array, keys: Keys) -> Array:
    """Shape (rows, n): how far each key lies below the row's top; inf where hidden."""
    n = keys.key.shape[1]
    size = min(rules.key_block, n)
    query = q[head, rows].astype(jnp.float32)

    def fill(index: Array, logit: Array) -> Array:
        at = jnp.minimum(index * size, n - size)
        part = _sweep.logits(rules, query, at, size, keys)
        return lax.dynamic_update_slice(logit, part, (jnp.int32(0), at))

    empty = jnp.zeros((rows.shape[0], n), jnp.float32)
    logit = lax.fori_loop(jnp.int32(0), jnp.int32(-(-n // size)), fill, empty)
    seen = _sweep.visible(rules, keys.window, begin + rows, jnp.arange(n, dtype=jnp.int32))
    if keys.hidden is not None:
        seen &= ~keys.hidden
    if keys.mask is not None:
        seen &= keys.mask[rows]
    top = jnp.max(jnp.where(seen, logit, -jnp.inf), 1, keepdims=True)
    return jnp.where(seen, top - logit, jnp.inf)


def _gap_counts(
    layer: Layer, q: Array, head: Array, keys: Keys, chosen: NDArray[np.int64], gaps: Floats
) -> tuple[Floats, Floats]:
    """Keys within each gap of the top, and accumulation scales, of the chosen rows."""
    counts, scales = np.zeros((len(chosen), len(gaps))), np.zeros(len(chosen))
    few = max(1, min(len(chosen), 64, ELEMENTS // layer.sizes.keys))
    for start in range(0, len(chosen), few):
        rows = chosen[start : start + few]
        padded = np.pad(rows, (0, few - len(rows)), mode="edge").astype(np.int32)
        begin = jnp.int32(layer.begin)
        found = _gaps(layer.rules, q, head, jnp.asarray(padded), begin, keys)
        ordered = np.sort(np.asarray(found)[: len(rows)], axis=1)
        here = slice(start, start + len(rows))
        counts[here] = [np.searchsorted(x, gaps, side="right") for x in ordered]
        scales[here] = accumulation_scale(ordered)
    return counts, scales


def accumulation_scale(ordered: NDArray[np.float32]) -> Floats:
    """Supremum over t > 0 of log N(t)/t for rows of ascending gaps, inf where hidden.

    N jumps at the gaps, so the supremum is the largest log k/gap_k.
    """
    with np.errstate(divide="ignore"):
        ratio = np.log(np.arange(2, ordered.shape[1] + 1)) / ordered[:, 1:].astype(np.float64)
    scale: Floats = np.max(ratio, axis=1, initial=0.0)
    return np.where(np.isfinite(ordered[:, 0]), scale, np.nan)
