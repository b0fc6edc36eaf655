"""One block of queries against all of their keys, key block by key block, with an online softmax.

The state of a row keeps its largest logit apart from the rest: `ties` items share it, `below` is
the sum of e^(logit - top) over all others, so that 1 - p keeps its digits where p rounds to 1.
Everything is float32; no array is larger than one block of logits, or than O(keys) marks.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

if TYPE_CHECKING:
    Array = Any

HIDDEN = -2e30  # the logit of a hidden key: below every running top, so that it weighs e^-huge = 0
START = -1e30  # the top of a row that has seen no key
TIED = 2.0**-23  # logits that differ by rounding share the top
FLOOR = -87.0  # log of what float32 no longer flushes to 0


class Rules(NamedTuple):
    """What decides which keys a query sees, and how logits are bent; fixed when compiling."""

    causal: bool
    windowed: bool
    capped: bool
    key_block: int
    bins: int  # of the distance profile, 0 for none


class Keys(NamedTuple):
    """What queries of one head are compared with."""

    key: Array  # (key heads, n, d)
    head: Array  # which key head
    scale: Array
    sink: Array  # logit of the learned sink, -inf for none
    window: Array  # tokens, where windowed
    cap: Array  # of the soft cap, where capped
    seen_before: Array  # (n + 1,): how many unhidden keys precede each position
    hidden: Array | None  # (n,) bool: keys hidden from every query
    mask: Array | None  # (queries, n) bool: True where the query sees the key
    marks: Array  # (n, s) bool: keys whose mass is asked for


class State(NamedTuple):
    """What a block of rows knows after some of its keys."""

    top: Array
    bottom: Array
    ties: Array
    below: Array
    slope: Array  # sum of e^(logit-top)·(top-logit)
    count: Array
    mass: Array  # (rows, s), relative to e^top
    profile: Array  # (rows, bins), relative to e^top


class Row(NamedTuple):
    """Statistics of rows, each of shape (rows,) but `mass` (rows, s) and `profile` (rows, bins)."""

    items: Array
    spread: Array
    entropy: Array
    coefficient: Array
    log_odds: Array
    effective_spread: Array
    sink_share: Array
    mass: Array
    profile: Array
    top: Array


def distance_bin(distance: Array) -> Array:
    """Bin 0 for distance 0, bin b ≥ 1 for 2^(b-1) ≤ distance < 2^b."""
    return 32 - lax.clz(distance.astype(jnp.int32))


def visible(rules: Rules, window: Array, queries: Array, columns: Array) -> Array:
    """Shape (rows, columns): which key positions a query at its position may see."""
    distance = queries[:, None] - columns[None, :]
    seen = jnp.ones(distance.shape, bool)
    if rules.causal:
        seen &= distance >= 0
    if rules.windowed:
        seen &= jnp.abs(distance) < window
    return seen


def reach(rules: Rules, window: Array, queries: Array, n: int) -> tuple[Array, Array]:
    """First and past-the-end key position that causality and the window leave each query."""
    first, end = jnp.zeros_like(queries), jnp.full_like(queries, n)
    if rules.windowed:
        first = jnp.clip(queries - window + 1, 0, n)
        end = jnp.clip(queries + window, 0, n)
    if rules.causal:
        end = jnp.clip(queries + 1, 0, n)
    return first, end


def logits(rules: Rules, query: Array, at: Array, size: int, keys: Keys) -> Array:
    """Shape (rows, size): q·k·scale in float32, soft-capped, with `size` keys from `at` on."""
    zero = jnp.int32(0)
    key = lax.dynamic_slice(keys.key, (keys.head, at, zero), (1, size, keys.key.shape[2]))[0]
    product = lax.dot_general(
        query, key.astype(jnp.float32), (((1,), (1,)), ((), ())), precision=lax.Precision.HIGHEST
    )
    product = product * keys.scale
    if rules.capped:
        product = keys.cap * jnp.tanh(product / keys.cap)
    # Behind the barrier everything reads the same rounded logits: XLA would otherwise contract the
    # product with the scale into top - logit, and the top would not be at a gap of 0.
    bent: Array = lax.optimization_barrier(product)  # type: ignore[no-untyped-call]
    return bent


def sweep(rules: Rules, query: Array, positions: Array, rows: Array, keys: Keys) -> Row:
    """Statistics of one block of queries of one head.

    Args:
        rules: see `Rules`.
        query: (rows, d), float32.
        positions: (rows,), the key position at which each query stands.
        rows: (rows,), the line of `keys.mask` of each query.
        keys: see `Keys`.
    """
    n = keys.key.shape[1]
    size = min(rules.key_block, n)
    first, end = reach(rules, keys.window, positions, n)
    start = State(
        top=jnp.full(positions.shape, START, jnp.float32),
        bottom=jnp.full(positions.shape, -START, jnp.float32),
        ties=jnp.zeros(positions.shape, jnp.float32),
        below=jnp.zeros(positions.shape, jnp.float32),
        slope=jnp.zeros(positions.shape, jnp.float32),
        count=(keys.seen_before[end] - keys.seen_before[first]).astype(jnp.int32)
        if keys.mask is None
        else jnp.zeros(positions.shape, jnp.int32),
        mass=jnp.zeros((*positions.shape, keys.marks.shape[1]), jnp.float32),
        profile=jnp.zeros((*positions.shape, rules.bins), jnp.float32),
    )
    step = partial(_step, rules, query, positions, rows, keys, size)
    blocks = jnp.min(first) // size, (jnp.max(end) + size - 1) // size
    return _finish(lax.fori_loop(*blocks, step, start), keys.sink)


def _step(
    rules: Rules,
    query: Array,
    positions: Array,
    rows: Array,
    keys: Keys,
    size: int,
    index: Array,
    state: State,
) -> State:
    n = keys.key.shape[1]
    begin = index * size
    at = jnp.minimum(begin, n - size)  # the last block overlaps the one before: see `fresh`
    columns = at + jnp.arange(size, dtype=jnp.int32)
    raw = logits(rules, query, at, size, keys)
    fresh = columns >= begin
    if keys.hidden is not None:
        fresh &= ~lax.dynamic_slice(keys.hidden, (at,), (size,))
    seen = visible(rules, keys.window, positions, columns) & fresh
    if keys.mask is not None:
        part = lax.dynamic_slice(keys.mask, (jnp.int32(0), at), (keys.mask.shape[0], size))
        seen &= part[rows]
        state = state._replace(count=state.count + jnp.sum(seen, 1, dtype=jnp.int32))
    logit = jnp.where(seen, raw, HIDDEN)
    bottom = jnp.minimum(state.bottom, jnp.min(jnp.where(seen, raw, -START), 1))
    top = jnp.maximum(state.top, jnp.max(logit, 1))
    gap = top[:, None] - logit
    weight = jnp.exp(-gap)
    moved = top - state.top
    fade = jnp.exp(-moved)
    kept = State(
        top=top,
        bottom=bottom,
        ties=jnp.where(moved > 0, 0.0, state.ties),
        below=fade * jnp.where(moved > 0, state.below + state.ties, state.below),
        slope=fade * (state.slope + moved * (state.below + state.ties)),
        count=state.count,
        mass=fade[:, None] * state.mass,
        profile=fade[:, None] * state.profile,
    )
    mass = kept.mass
    if keys.marks.shape[1]:
        marks = lax.dynamic_slice(keys.marks, (at, jnp.int32(0)), (size, keys.marks.shape[1]))
        mass += jnp.dot(weight, marks.astype(jnp.float32), precision=lax.Precision.HIGHEST)
    tied = gap <= TIED * jnp.abs(top)[:, None]
    below = jnp.sum(jnp.where(tied, 0.0, weight), 1)
    ties = jnp.sum(tied, 1, dtype=jnp.float32)
    profile = kept.profile
    if rules.bins:
        profile = _add_profile(rules, profile, weight, below + ties, positions, columns)
    return kept._replace(
        ties=kept.ties + ties,
        below=kept.below + below,
        slope=kept.slope + jnp.sum(weight * gap, 1),
        mass=mass,
        profile=profile,
    )


def _add_profile(
    rules: Rules, profile: Array, weight: Array, total: Array, positions: Array, columns: Array
) -> Array:
    """Add a block's weights to the bins of their distance; most blocks lie in one or two bins."""
    low, high = jnp.min(positions), jnp.max(positions)
    left, right = columns[0], columns[-1]
    nearest = jnp.maximum(jnp.maximum(low - right, left - high), 0)
    farthest = jnp.maximum(jnp.abs(high - left), jnp.abs(right - low))
    first = distance_bin(nearest)
    last = jnp.minimum(distance_bin(farthest), rules.bins - 1)

    def whole(profile: Array) -> Array:
        return profile.at[:, first].add(total)

    def parts(profile: Array) -> Array:
        distance = jnp.abs(positions[:, None] - columns[None, :])

        def one(index: Array, profile: Array) -> Array:
            lower = jnp.where(index == 0, 0, jnp.left_shift(1, jnp.maximum(index - 1, 0)))
            upper = jnp.left_shift(1, index)
            inside = (distance >= lower) & (distance < upper)
            return profile.at[:, index].add(jnp.sum(jnp.where(inside, weight, 0.0), 1))

        return lax.fori_loop(first, last + 1, one, profile)

    return lax.cond(first == last, whole, parts, profile)


def _finish(state: State, sink: Array) -> Row:
    """What is asked for, from the sums; nan where a row sees no key."""
    seen = state.count > 0
    rest = state.below + (state.ties - 1.0)  # all items but one at the top
    total = 1.0 + rest
    lost = rest <= 0.0  # flushed to 0: every other item is more than 87 logits below
    log_rest = jnp.where(lost, FLOOR, jnp.log(jnp.where(lost, 1.0, rest)))
    alone = state.count == 1
    log_rest = jnp.where(alone, -jnp.inf, log_rest)
    above = sink - state.top
    log_odds = -jnp.logaddexp(log_rest, above)
    spread = jnp.where(seen, state.top - state.bottom, jnp.nan)
    others = jnp.maximum(state.count - 1, 1).astype(jnp.float32)
    effective = jnp.maximum(jnp.log(others) + log_odds, 0.0)
    effective = jnp.where(lost, jnp.minimum(effective, spread), effective)
    # The sink's share of the row, and the share that is left for tokens.
    over = above - jnp.log(total)
    share = jax.nn.sigmoid(over)
    tokens = jax.nn.sigmoid(-over) / total

    def known(value: Array) -> Array:
        shape = seen.reshape(seen.shape + (1,) * (value.ndim - 1))
        return jnp.where(shape, value, jnp.nan)

    return Row(
        items=state.count,
        spread=spread,
        entropy=known(jnp.log1p(rest) + state.slope / total),
        coefficient=known(jax.nn.sigmoid(log_odds)),
        log_odds=known(log_odds),
        effective_spread=known(jnp.where(alone, 0.0, effective)),
        sink_share=known(share),
        mass=known(state.mass * tokens[:, None]),
        profile=known(state.profile * tokens[:, None]),
        top=known(state.top),
    )
