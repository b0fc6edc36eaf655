"""Runs of the QK-norm experiment: train a variant and a seed, test and certify it, keep numbers."""

from __future__ import annotations

import platform
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import dispersion
from dispersion.experiments import qk_norm_model as model
from dispersion.experiments import recall
from dispersion.experiments.qk_norm_certificates import certificates
from dispersion.experiments.qk_norm_training import Recipe, train

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_TEST = 1_000_000  # added to seeds for contexts that were not trained on
_TESTED = 4096  # items that are tested in one call, about
GROUPS = ("needle", "needle_absent", "recall", "recall_absent")
LENGTHS = tuple(64 * 2**i for i in range(7))
PLAIN = tuple(variant for variant in model.VARIANTS if variant.remedy == "nothing")


class Plan(NamedTuple):
    """What is run.

    Attributes:
        variants: which.
        recipe: how each is trained.
        longer: variants that are also trained for `more` times as many steps.
        lengths: items of the test contexts.
        contexts: test contexts at each length.
        rooms: lengths that contexts are padded to, each compiled once; the longest holds all.
    """

    variants: tuple[model.Variant, ...] = model.VARIANTS
    recipe: Recipe = Recipe()
    longer: tuple[model.Variant, ...] = PLAIN
    more: int = 4
    lengths: tuple[int, ...] = LENGTHS
    contexts: int = 64
    rooms: tuple[int, ...] = (256, 1024, 4096)


def settings(plan: Plan) -> dict[str, Any]:
    """What a finished run is worth keeping for: with other settings it is trained again."""
    model_names = ("LAYERS", "WIDTH", "HEADS", "HEAD_DIM", "HIDDEN")
    task_names = ("KEY_BITS", "VALUES", "MARKS", "NEEDLES", "QUERIES")
    return {
        **{name.lower(): getattr(model, name) for name in model_names},
        **{name.lower(): getattr(recall, name) for name in task_names},
        **plan.recipe._asdict(),
        "lengths": list(plan.lengths),
        "contexts": plan.contexts,
        "more": plan.more,
        "groups": list(GROUPS),
    }


@partial(jax.jit, static_argnums=(1, 2))
def _contexts(key: Any, contexts: int, room: int, n: Any) -> recall.Contexts:
    return recall.make_contexts(key, contexts, room, jnp.full(contexts, n))


@partial(jax.jit, static_argnums=1)
def _tested(p: model.Tree, variant: model.Variant, batch: recall.Contexts) -> model.Tree:
    """By query whether it is right; by layer and head, and query, what rows hold."""
    return jax.vmap(partial(_summary, p, variant))(batch)


def _summary(p: model.Tree, variant: model.Variant, c: recall.Contexts) -> model.Tree:
    answers, rows = model.forward(p, variant, c)
    joined = jax.tree.map(lambda *layers: jnp.concatenate(layers), *rows)
    held, sink, logits = joined["shares"], joined["sink"], joined["logits"]
    target = jnp.where(c.place < 0, 0, c.place + 1)
    logs = -jnp.sum(held * jnp.log(jnp.maximum(held, 1e-37)), axis=-1)
    return {
        "right": jnp.argmax(answers, axis=-1) == c.answer,
        "needle": jnp.take_along_axis(held, target[None, :, None], axis=-1)[..., 0],
        "first": held[..., 0],
        "sink": sink,
        "entropy": logs - sink * jnp.log(jnp.maximum(sink, 1e-37)),
        "largest": jnp.max(held, axis=-1),
        "spread": jnp.max(logits, axis=-1)
        - jnp.min(jnp.where(jnp.isfinite(logits), logits, jnp.inf), axis=-1),
    }


def _groups(values: NDArray[Any]) -> list[Any]:
    """Means over contexts and each of GROUPS; queries are the last axis, contexts the first."""
    edges = np.cumsum([recall.NEEDLES, recall.QUERIES - recall.NEEDLES] * 2)[:-1]
    return [part.mean(axis=(0, -1)) for part in np.split(values, edges, axis=-1)]


def _rounded(values: Any, digits: int = 4) -> Any:
    return np.round(np.asarray(values, dtype=np.float64), digits).tolist()


def test(p: model.Tree, variant: model.Variant, seed: int, plan: Plan) -> dict[str, Any]:
    """Means over fresh contexts of each length.

    ``accuracy`` of each of GROUPS and its ``error``, the standard error over contexts; ``all`` and
    ``all_error``, of all queries; by layer and head, and group: ``needle``, the share of the item
    that is asked for (not for absent ones), ``first``, of the opening token, ``sink``, of the
    learned sink, ``entropy`` in nats, a learned sink counted as a key; by layer and head, over all
    rows: the ``largest`` coefficient and the largest ``spread``.
    """
    result = {}
    for n in plan.lengths:
        room = min(room for room in plan.rooms if room >= n)
        block = max(1, min(plan.contexts, _TESTED // room))
        parts = [
            _tested(p, variant, _contexts(jax.random.fold_in(key, i), block, room, n))
            for key in [jax.random.fold_in(jax.random.key(_TEST + seed), n)]
            for i in range(plan.contexts // block)
        ]
        found = {name: np.concatenate([np.asarray(x[name]) for x in parts]) for name in parts[0]}
        right = found.pop("right").astype(np.float64)
        by_context = [_groups(one[None]) for one in right]
        spread = found.pop("spread").max(axis=(0, 2))
        heads = {name: np.stack(_groups(x.astype(np.float64)), -1) for name, x in found.items()}
        every = right.mean(axis=1)
        here: dict[str, Any] = {
            "accuracy": _rounded(_groups(right)),
            "error": _rounded(np.std(by_context, axis=0, ddof=1) / plan.contexts**0.5),
            "all": _rounded(every.mean()),
            "all_error": _rounded(every.std(ddof=1) / plan.contexts**0.5),
            "needle": _rounded(heads["needle"][:, ::2]),
            "first": _rounded(heads["first"]),
            "entropy": _rounded(heads["entropy"], 3),
            "largest": _rounded(found["largest"].max(axis=(0, 2)), 6),
            "spread": _rounded(spread, 3),
        }
        if variant.remedy == "sink":
            here["sink"] = _rounded(heads["sink"])
        result[str(n)] = here
    return result


def learned(p: model.Tree, variant: model.Variant) -> dict[str, Any]:
    """Learned sink logits or s by layer and head, and the largest product of QK gains by layer."""
    found: dict[str, Any] = {}
    for name in ("sink", "s"):
        if f"0.{name}" in p:
            found[name] = [_rounded(p[f"{i}.{name}"]) for i in range(model.LAYERS)]
    if variant.qk_norm != "none":
        products = (np.asarray(p[f"{i}.q_gain"] * p[f"{i}.k_gain"]) for i in range(model.LAYERS))
        found["gain_product"] = [_rounded(np.abs(x).max()) for x in products]
    return found


def run(variant: model.Variant, steps: int, seed: int, plan: Plan) -> dict[str, Any]:
    """Train, test and certify one variant and seed; numbers that JSON can hold."""
    started, cpu = time.perf_counter(), time.process_time()
    p, losses = train(variant, plan.recipe._replace(steps=steps), seed)
    trained = time.process_time()
    measured = test(p, variant, seed, plan)
    return {
        "qk_norm": variant.qk_norm,
        "remedy": variant.remedy,
        "steps": steps,
        "seed": seed,
        "losses": _rounded(losses),
        "measured": measured,
        "learned": learned(p, variant),
        "certified": certificates(p, variant, plan.lengths),
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "training_cpu_seconds": round(trained - cpu, 1),
        "versions": {
            "python": platform.python_version(),
            "jax": jax.__version__,
            "numpy": np.__version__,
            "dispersion": dispersion.__version__,
        },
    }


def _asked(seeds: int, plan: Plan) -> list[tuple[model.Variant, int, int]]:
    """Variant, steps and seed of every run, in the order in which they are run."""
    steps = plan.recipe.steps
    # Seeds on the outside: what an interrupted experiment has, it has of all variants.
    asked = [(variant, steps, seed) for seed in range(seeds) for variant in plan.variants]
    for seed in range(seeds):
        asked += [(variant, steps * plan.more, seed) for variant in plan.longer]
    return asked


def _key(record: dict[str, Any]) -> tuple[model.Variant, int, int]:
    return model.Variant(record["qk_norm"], record["remedy"]), record["steps"], record["seed"]


def run_missing(
    kept: dict[str, Any],
    seeds: int,
    keep: Callable[[dict[str, Any]], None],
    say: Callable[[str], None] = lambda _: None,
    plan: Plan | None = None,
) -> dict[str, Any]:
    """Run what `kept` lacks of the seeds 0..seeds-1 of all variants.

    Args:
        kept: what `keep` was given last, or {}.
        seeds: of each variant.
        keep: takes the whole after each run.
        say: takes a line of progress after each run.
        plan: what is run; the whole experiment by default.
    """
    plan = plan or Plan()
    now = settings(plan)
    runs = list(kept.get("runs", ())) if kept.get("settings") == now else []
    done = set(map(_key, runs))
    todo = [asked for asked in _asked(seeds, plan) if asked not in done]
    order = {variant: place for place, variant in enumerate(model.VARIANTS)}
    for i, (variant, steps, seed) in enumerate(todo):
        record = run(variant, steps, seed, plan)
        runs = sorted([*runs, record], key=lambda r: (r["steps"], order[_key(r)[0]], r["seed"]))
        keep({"settings": now, "runs": runs})
        ends = plan.lengths[0], plan.lengths[-1]
        first, last = (100 * record["measured"][str(n)]["all"] for n in ends)
        say(
            f"{variant.name}, {steps} steps, seed {seed} ({i + 1} of {len(todo)}): "
            f"{first:.1f} % right at {ends[0]:,} items, {last:.1f} % at {ends[1]:,}; "
            f"{record['cpu_seconds']:.0f} s of CPU"
        )
    return {"settings": now, "runs": runs}
