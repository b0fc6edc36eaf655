"""Max retrieval: which class does the item of highest priority have?

After Veličković et al. 2024 (https://arxiv.org/abs/2410.01104). An item is a priority ρ ~ U(0, 1)
and one of 10 classes; the query is a number ~ U(0, 1) that says nothing. Items and query pass
through encoders of two layers, one softmax head mixes the items for the query, and two more layers
read the class off the mixture. Trained on sets of 5 to 16 items, tested on longer ones. The task
and batches follow what is remembered of that paper; width and learning rate are our own, and the
number of steps is chosen so that accuracy at 16 items comes close to the published one.

Needs JAX (dependency group ``test``); everything is float32 on the CPU.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from collections.abc import Iterator

CLASSES, WIDTH = 10, 64
SHORTEST, LONGEST = 5, 16
BATCH, CHUNK = 128, 50
RATE, DECAY = 3e-3, 1e-3
LENGTHS = tuple(LONGEST * 2**i for i in range(11))
MOST_SETS, MOST_ITEMS = 1024, 2**21

Tree = dict[str, Any]


def make_parameters(key: Any) -> Tree:
    """Weights with variance 1/fan-in, biases 0."""
    shapes = {
        "item1": (1 + CLASSES, WIDTH),
        "item2": (WIDTH, WIDTH),
        "query1": (1, WIDTH),
        "query2": (WIDTH, WIDTH),
        "q": (WIDTH, WIDTH),
        "k": (WIDTH, WIDTH),
        "v": (WIDTH, WIDTH),
        "out1": (WIDTH, WIDTH),
        "out2": (WIDTH, CLASSES),
    }
    keys = jax.random.split(key, len(shapes))
    made: Tree = {}
    for (name, shape), one in zip(shapes.items(), keys, strict=True):
        made[name] = jax.random.normal(one, shape) / shape[0] ** 0.5
        if name not in ("q", "k", "v"):
            made[name + "_bias"] = jnp.zeros(shape[1])
    return made


def make_sets(key: Any, sets: int, n: int) -> tuple[Any, Any, Any, Any]:
    """Priorities (sets, n), classes (sets, n), queries (sets, 1) and answers (sets,)."""
    first, second, third = jax.random.split(key, 3)
    priority = jax.random.uniform(first, (sets, n))
    kind = jax.random.randint(second, (sets, n), 0, CLASSES)
    query = jax.random.uniform(third, (sets, 1))
    answer = jnp.take_along_axis(kind, jnp.argmax(priority, axis=1)[:, None], axis=1)[:, 0]
    return priority, kind, query, answer


def _mlp(p: Tree, name: str, x: Any) -> Any:
    hidden = jax.nn.gelu(x @ p[name + "1"] + p[name + "1_bias"])
    return hidden @ p[name + "2"] + p[name + "2_bias"]


def encode(p: Tree, priority: Any, kind: Any, query: Any) -> tuple[Any, Any]:
    """Logits (sets, n) and encoded items (sets, n, WIDTH)."""
    # The first layer on a one-hot class is a row of its matrix.
    first = priority[..., None] * p["item1"][0] + p["item1"][1:][kind] + p["item1_bias"]
    items = jax.nn.gelu(first) @ p["item2"] + p["item2_bias"]
    asked = _mlp(p, "query", query) @ p["q"] @ p["k"].T * WIDTH**-0.5
    return jnp.einsum("snw,sw->sn", items, asked), items


def answer_logits(p: Tree, shares: Any, items: Any) -> Any:
    """Logits of the classes, (sets, CLASSES), from coefficients (sets, n)."""
    return _mlp(p, "out", jnp.einsum("sn,snw->sw", shares, items) @ p["v"])


def _loss(p: Tree, batch: tuple[Any, ...], count: Any) -> Any:
    priority, kind, query, _ = batch
    inside = jnp.arange(LONGEST) < count[:, None]
    best = jnp.argmax(jnp.where(inside, priority, -1.0), axis=1)
    answer = jnp.take_along_axis(kind, best[:, None], axis=1)
    logits, items = encode(p, priority, kind, query)
    shares = jax.nn.softmax(jnp.where(inside, logits, -jnp.inf), axis=-1)
    logs = jax.nn.log_softmax(answer_logits(p, shares, items))
    return -jnp.mean(jnp.take_along_axis(logs, answer, axis=1))


def _step(steps: int, carry: tuple[Tree, Tree, Tree, Any], key: Any) -> tuple[Any, Any]:
    """One step of Adam with decoupled weight decay, its rate falling along a cosine."""
    p, mean, square, t = carry
    first, second = jax.random.split(key)
    count = jax.random.randint(second, (BATCH,), SHORTEST, LONGEST + 1)
    value, slope = jax.value_and_grad(_loss)(p, make_sets(first, BATCH, LONGEST), count)
    t = t + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, slope)
    square = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, square, slope)
    rate = 0.5 * RATE * (1 + jnp.cos(jnp.pi * t / steps))
    adam = rate * jnp.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    p = jax.tree.map(
        lambda w, m, v: w - adam * m / (jnp.sqrt(v) + 1e-8) - rate * DECAY * w, p, mean, square
    )
    return (p, mean, square, t), value


@partial(jax.jit, static_argnums=0)
def _chunk(steps: int, carry: Any, keys: Any) -> Any:
    return jax.lax.scan(partial(_step, steps), carry, keys)


def train(seed: int, steps: int) -> tuple[Tree, list[float]]:
    """Parameters after `steps` steps, and the mean loss of every CHUNK of them."""
    start, rest = jax.random.split(jax.random.key(seed))
    p = make_parameters(start)
    zero = jax.tree.map(jnp.zeros_like, p)
    carry = (p, zero, zero, jnp.zeros(()))
    losses = []
    for i in range(steps // CHUNK):
        carry, values = _chunk(steps, carry, jax.random.split(jax.random.fold_in(rest, i), CHUNK))
        losses.append(float(values.mean()))
    return carry[0], losses


@partial(jax.jit, static_argnums=(2, 3))
def rows(p: Tree, key: Any, sets: int, n: int) -> Tree:
    """Fresh sets of n items: logits, encoded items, answers, and the place of the best item."""
    priority, kind, query, answer = make_sets(key, sets, n)
    logits, items = encode(p, priority, kind, query)
    # Ranks of the items that matter, best first; the best is the needle.
    order = jnp.argsort(-priority, axis=1)[:, : min(n, LONGEST)]
    return {"logits": logits, "items": items, "answer": answer, "order": order}


@jax.jit
def sharpened(p: Tree, found: Tree, beta: Any) -> Tree:
    """Coefficients under inverse temperatures (sets,), and the log probability of each class."""
    shares = jax.nn.softmax(beta[:, None] * found["logits"], axis=-1)
    return {
        "shares": shares,
        "classes": jax.nn.log_softmax(answer_logits(p, shares, found["items"])),
    }


def blocks(p: Tree, seed: int, n: int) -> Iterator[Tree]:
    """`rows` for all the sets that a length is tested on, a few at a time."""
    sets = min(MOST_SETS, MOST_ITEMS // n)
    block = max(1, min(sets, 2**16 // n))
    for i in range(sets // block):
        yield rows(p, jax.random.fold_in(jax.random.key(seed), n + i), block, n)
