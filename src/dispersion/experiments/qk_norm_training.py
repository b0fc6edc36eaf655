"""Training of one variant: a mixture of both tasks on short contexts, AdamW, one rate for all.

Learning rate, steps and batch were fixed by looking at seed 0 of variants without a remedy; no
variant was tuned for itself.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dispersion.experiments import qk_norm_model as model
from dispersion.experiments.recall import make_contexts


class Recipe(NamedTuple):
    """How a variant is trained.

    Attributes:
        steps: in all.
        batch: contexts a step.
        shortest, longest: items of a context, uniform between them.
        rate: the highest learning rate; it rises over the first `warm` steps and falls along a
            cosine to 0.
        decay: of matrices, times the rate; gains, sink logits and s do not decay.
        chunk: steps that are compiled into one call.
    """

    steps: int = 800
    batch: int = 8
    shortest: int = 16
    longest: int = 64
    rate: float = 1e-2
    decay: float = 1e-2
    warm: int = 50
    chunk: int = 50


def loss(p: model.Tree, variant: model.Variant, batch: Any) -> Any:
    """Mean cross-entropy of the answers, in nats."""
    logits, _ = jax.vmap(lambda c: model.forward(p, variant, c))(batch)
    logs = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(logs, batch.answer[..., None], axis=-1))


@partial(jax.jit, static_argnums=0)
def _batches(recipe: Recipe, key: Any) -> Any:
    """The contexts of one chunk, (chunk, batch, ...); all variants share what is compiled here."""
    first, second = jax.random.split(key)
    sets = recipe.chunk * recipe.batch
    count = jax.random.randint(first, (sets,), recipe.shortest, recipe.longest + 1)
    made = make_contexts(second, sets, recipe.longest, count)
    return jax.tree.map(lambda x: x.reshape(recipe.chunk, recipe.batch, *x.shape[1:]), made)


def _step(variant: model.Variant, recipe: Recipe, carry: Any, batch: Any) -> tuple[Any, Any]:
    p, mean, square, t = carry
    value, slope = jax.value_and_grad(loss)(p, variant, batch)
    size = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(slope)))
    slope = jax.tree.map(lambda g: g / jnp.maximum(1.0, size), slope)
    t = t + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, slope)
    square = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, square, slope)
    rate = 0.5 * recipe.rate * (1 + jnp.cos(jnp.pi * t / recipe.steps))
    rate = rate * jnp.minimum(1.0, t / recipe.warm)
    adam = rate * jnp.sqrt(1 - 0.99**t) / (1 - 0.9**t)

    def moved(w: Any, m: Any, v: Any) -> Any:
        shrunk = w * (1 - rate * recipe.decay) if w.ndim == 2 else w
        return shrunk - adam * m / (jnp.sqrt(v) + 1e-8)

    return (jax.tree.map(moved, p, mean, square), mean, square, t), value


@partial(jax.jit, static_argnums=(0, 1))
def _chunk(variant: model.Variant, recipe: Recipe, carry: Any, batches: Any) -> Any:
    return jax.lax.scan(partial(_step, variant, recipe), carry, batches)


def train(variant: model.Variant, recipe: Recipe, seed: int) -> tuple[model.Tree, list[float]]:
    """Parameters after training, and the mean loss of every chunk of steps.

    Seeds fix weights and contexts; variants of one seed see the same contexts.
    """
    start, rest = jax.random.split(jax.random.key(seed))
    p = model.make_parameters(start, variant, recipe.longest)
    zero = jax.tree.map(jnp.zeros_like, p)
    carry = (p, zero, zero, jnp.zeros(()))
    losses = []
    for i in range(recipe.steps // recipe.chunk):
        batches = _batches(recipe, jax.random.fold_in(rest, i))
        carry, values = _chunk(variant, recipe, carry, batches)
        losses.append(float(values.mean()))
    return carry[0], losses
