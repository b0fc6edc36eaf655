"""Runs of the max-retrieval experiment: train a seed, test it at every length, keep the numbers."""

from __future__ import annotations

import platform
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from dispersion.experiments import max_retrieval as task
from dispersion.experiments.adaptive import PUBLISHED, fit, inverse_temperature
from dispersion.row import row_entropy

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

STEPS = (650, 4000)
"""Steps of the two trainings: accuracy at 16 items as published, and nearly perfect."""

FIT_LENGTHS = task.LENGTHS[:-2]
FIT_SETS = 96  # sets of each length that the polynomial is fitted to, at most
GRID = np.geomspace(1.0, 32.0, 51)  # inverse temperatures that are tried, the first none
SHOWN_SETS = 16
_TEST, _FIT, _SHOWN = 1_000, 2_000, 3_000  # seeds of sets, apart from those of training


def settings() -> dict[str, Any]:
    """What a finished run is worth keeping for: with other settings it is trained again."""
    names = ("CLASSES", "WIDTH", "SHORTEST", "LONGEST", "BATCH", "RATE", "DECAY", "MOST_SETS")
    return {
        **{name.lower(): getattr(task, name) for name in names},
        "steps": list(STEPS),
        "lengths": list(task.LENGTHS),
        "most_factor": float(GRID[-1]),
    }


def _entropy(found: task.Tree) -> NDArray[np.float64]:
    return np.asarray(row_entropy(np.asarray(found["logits"], dtype=np.float64)))


def best_temperatures(p: task.Tree, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Entropies of rows that lead to a wrong answer, and the factor that puts each one right.

    It is the smallest one of GRID at which the answer is right; sets with none are left out.
    """
    entropies, factors = [], []
    for n in FIT_LENGTHS:
        left = FIT_SETS
        for found in task.blocks(p, seed + _FIT, n):
            answers = np.asarray(found["answer"])
            right = np.stack(
                [
                    np.asarray(
                        task.sharpened(p, found, np.full(len(answers), beta, np.float32))["classes"]
                    ).argmax(axis=1)
                    == answers
                    for beta in GRID
                ]
            )
            wrong = np.flatnonzero(right.any(axis=0) & ~right[0])[:left]
            entropies.append(_entropy(found)[wrong])
            factors.append(GRID[right[:, wrong].argmax(axis=0)])
            left -= len(wrong)
            if left <= 0:
                break
    return np.concatenate(entropies), np.concatenate(factors)


def test(p: task.Tree, seed: int, refit: tuple[float, ...]) -> dict[str, dict[str, float]]:
    """Means over fresh sets of each length: accuracies, and what the rows of logits look like."""
    result = {}
    for n in task.LENGTHS:
        kept: dict[str, list[Any]] = defaultdict(list)
        for found in task.blocks(p, seed + _TEST, n):
            answers, entropy = np.asarray(found["answer"]), _entropy(found)
            factors = {
                "plain": np.ones_like(entropy),
                "published": inverse_temperature(entropy),
                "refit": inverse_temperature(entropy, refit),
            }
            for name, beta in factors.items():
                sharp = task.sharpened(p, found, beta.astype(np.float32))
                kept[name].append(np.asarray(sharp["classes"]).argmax(axis=1) == answers)
                if name == "plain":
                    shares, logits = np.asarray(sharp["shares"]), np.asarray(found["logits"])
                    needle = np.asarray(found["order"])[:, :1]
                    kept["needle"].append(np.take_along_axis(shares, needle, axis=1)[:, 0])
                    kept["largest"].append(shares.max(axis=1))
                    kept["spread"].append(logits.max(axis=1) - logits.min(axis=1))
            kept["entropy"].append(entropy)
        result[str(n)] = {k: round(float(np.concatenate(v).mean()), 5) for k, v in kept.items()}
        result[str(n)]["sets"] = sum(map(len, kept["plain"]))
    return result


def shown(p: task.Tree, seed: int) -> dict[str, dict[str, Any]]:
    """Coefficients of the 16 items of highest priority, best first, for a few sets a length."""
    pictures: dict[str, dict[str, Any]] = {"plain": {}, "published": {}}
    for n in task.LENGTHS:
        found = task.rows(p, jax.random.key(seed + _SHOWN + n), SHOWN_SETS, n)
        entropy = _entropy(found)
        for name, beta in (
            ("plain", np.ones_like(entropy)),
            ("published", inverse_temperature(entropy, PUBLISHED)),
        ):
            shares = np.asarray(task.sharpened(p, found, beta.astype(np.float32))["shares"])
            top = np.take_along_axis(shares, np.asarray(found["order"]), axis=1)
            pictures[name][str(n)] = [[round(float(x), 4) for x in row] for row in top]
    return pictures


def run(seed: int) -> dict[str, Any]:
    """Train and test one seed; numbers that JSON can hold."""
    record: dict[str, Any] = {"seed": seed, "trainings": []}
    for steps in STEPS:
        started, cpu = time.perf_counter(), time.process_time()
        p, losses = task.train(seed, steps)
        entropies, factors = best_temperatures(p, seed)
        refit = fit(entropies, factors)
        training = {
            "steps": steps,
            "final_loss": round(losses[-1], 6),
            "refit": [round(c, 6) for c in refit],
            "fit_points": [
                [round(float(h), 3), round(float(b), 3)]
                for h, b in zip(entropies, factors, strict=True)
            ][:: max(1, len(entropies) // 200)],
            "measured": test(p, seed, refit),
        }
        if seed == 0 and steps == STEPS[0]:
            record["coefficients"] = shown(p, seed)
        training["seconds"] = round(time.perf_counter() - started, 1)
        training["cpu_seconds"] = round(time.process_time() - cpu, 1)
        record["trainings"].append(training)
    record["versions"] = {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": np.__version__,
    }
    return record


def run_missing(
    kept: dict[str, Any], seeds: int, keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Run the seeds 0..seeds-1 that `kept` lacks, handing the whole to `keep` after each one."""
    now = settings()
    runs = list(kept.get("runs", ())) if kept.get("settings") == now else []
    done = {record["seed"] for record in runs}
    for seed in range(seeds):
        if seed not in done:
            runs = sorted([*runs, run(seed)], key=lambda record: record["seed"])
            keep({"settings": now, "runs": runs})
    return {"settings": now, "runs": runs}
