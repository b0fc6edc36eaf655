"""Needle retrieval and associative recall in one context, with queries that have no answer.

A context is a token that opens it and n items in random order, none with a position. An item has a
key of KEY_BITS random signs and one of VALUES values; NEEDLES of the items also bear a mark, each
its own of MARKS. Behind it stand queries that see the context and themselves, not each other:

- needle: a mark; the answer is the value of the item that bears it. All other items lack a mark or
  bear another, so that a longer context has more items to ignore and no harder ones.
- recall: a key; the answer is the value of the item that has it. The longer the context, the nearer
  the nearest other key: a harder question as well as a longer one.

A quarter of either kind asks for a mark or a key that no item has, and the answer is NOTHING.

Needs JAX (dependency group ``test``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

KEY_BITS, VALUES, MARKS = 24, 16, 32
NEEDLES, QUERIES = 12, 16
"""Marked items of a context, and queries of either kind, of which NEEDLES have an answer."""

NOTHING = VALUES
"""The answer to queries that have none; classes are 0..VALUES."""


class Contexts(NamedTuple):
    """Contexts of up to n items and their queries: needles first, then recalls.

    Attributes:
        keys: signs of the items' keys, (contexts, n, KEY_BITS).
        values: (contexts, n), in 0..VALUES-1.
        marks: (contexts, n), 1..MARKS, and 0 for none.
        count: (contexts,), how many items there are; later ones do not exist.
        asked_marks: (contexts, 2·QUERIES), 1..MARKS for needle queries, 0 for recalls.
        asked_keys: (contexts, 2·QUERIES, KEY_BITS), zeros for needle queries.
        place: (contexts, 2·QUERIES), the index of the item that is asked for, -1 for none.
        answer: (contexts, 2·QUERIES), its value or NOTHING.
    """

    keys: Any
    values: Any
    marks: Any
    count: Any
    asked_marks: Any
    asked_keys: Any
    place: Any
    answer: Any


def make_contexts(key: Any, contexts: int, n: int, count: Any) -> Contexts:
    """Fresh contexts with room for n items, of which the first `count`, (contexts,), exist.

    `count` must be at least NEEDLES. Keys that no item is to have are drawn anew: about one in
    2^KEY_BITS/n of them is some item's all the same.
    """
    return jax.vmap(_make, in_axes=(0, None, 0))(jax.random.split(key, contexts), n, count)


def _make(key: Any, n: int, count: Any) -> Contexts:
    draws = jax.random.split(key, 6)
    keys = _signs(draws[0], n)
    values = jax.random.randint(draws[1], (n,), 0, VALUES)
    needles, recalled = (_some_items(draw, n, count) for draw in draws[2:4])
    colours = 1 + jax.random.permutation(draws[4], MARKS)[:QUERIES]
    marks = jnp.zeros(n, jnp.int32).at[needles].set(colours[:NEEDLES])
    absent = QUERIES - NEEDLES
    asked_keys = jnp.concatenate([keys[recalled], _signs(draws[5], absent)])
    nowhere = jnp.full(absent, -1)
    place = jnp.concatenate([needles, nowhere, recalled, nowhere])
    return Contexts(
        keys,
        values,
        marks,
        count,
        jnp.concatenate([colours, jnp.zeros(QUERIES, jnp.int32)]),
        jnp.concatenate([jnp.zeros((QUERIES, KEY_BITS)), asked_keys]),
        place,
        jnp.where(place < 0, NOTHING, values[place]),
    )


def _signs(key: Any, n: int) -> Any:
    return jax.random.rademacher(key, (n, KEY_BITS), jnp.float32)


def _some_items(key: Any, n: int, count: Any) -> Any:
    """NEEDLES different items among the first `count`."""
    order = jnp.where(jnp.arange(n) < count, jax.random.uniform(key, (n,)), 2.0)
    return jnp.argsort(order)[:NEEDLES]
