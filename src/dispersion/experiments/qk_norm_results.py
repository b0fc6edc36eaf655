"""Arrays from the kept runs of the QK-norm experiment, for figures and tests; without JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from numpy.typing import NDArray

KINDS = ("answered", "nothing", "all")
"""Queries that have an answer, those that have none, and all; both tasks alike in each."""


def runs_of(
    data: dict[str, Any], qk_norm: str, remedy: str, steps: int | None = None
) -> list[dict[str, Any]]:
    """The runs of a variant, by seed; by default those trained for as long as all variants are.

    Raises:
        CheckpointError: there are none, as after a `--recompute` that was interrupted.
    """
    asked = (qk_norm, remedy, steps or data["settings"]["steps"])
    found = [r for r in data["runs"] if (r["qk_norm"], r["remedy"], r["steps"]) == asked]
    if not found:
        msg = (
            "figures/data/qk_norm_sinks.json must hold every variant; finish it with "
            "'dispersion figures qk_norm_sinks --recompute'. It lacks "
            f"{qk_norm}+{remedy} after {asked[2]} steps."
        )
        raise CheckpointError(msg)
    return sorted(found, key=lambda r: int(r["seed"]))


def measured(runs: list[dict[str, Any]], key: str) -> NDArray[np.float64]:
    """What was measured, (seeds, lengths, ...)."""
    return np.array([[at[key] for at in run["measured"].values()] for run in runs])


def accuracy(runs: list[dict[str, Any]], kind: str) -> NDArray[np.float64]:
    """Per cent right, (seeds, lengths), of one of KINDS or one of the groups of queries."""
    if kind == "all":
        return np.asarray(100 * measured(runs, "all"))
    return np.asarray(100 * _of_kind(measured(runs, "accuracy"), kind))


def needle(runs: list[dict[str, Any]]) -> NDArray[np.float64]:
    """Share of the item that is asked for, (seeds, lengths, heads), both tasks alike."""
    return np.asarray(measured(runs, "needle").mean(axis=-1))


def shed(runs: list[dict[str, Any]], kind: str) -> NDArray[np.float64]:
    """Share of the opening token and the learned sink together, (seeds, lengths, heads)."""
    share = measured(runs, "first")
    if "sink" in next(iter(runs[0]["measured"].values())):
        share += measured(runs, "sink")
    return _of_kind(share, kind)


def entropy(runs: list[dict[str, Any]], kind: str) -> NDArray[np.float64]:
    """Entropy in nats, (seeds, lengths, heads)."""
    return _of_kind(measured(runs, "entropy"), kind)


def certified(runs: list[dict[str, Any]], key: str) -> NDArray[np.float64]:
    """What is certified, (seeds, lengths, heads)."""
    return np.array([run["certified"][key] for run in runs]).swapaxes(1, 2)


def changed(
    runs: list[dict[str, Any]], against: list[dict[str, Any]], kind: str = "all"
) -> NDArray[np.float64]:
    """Points of accuracy gained at the longest length, (seeds,), each seed against the same."""
    seeds, others = ([run["seed"] for run in one] for one in (runs, against))
    both = [seed for seed in seeds if seed in others]
    ends = [
        accuracy([run for run in one if run["seed"] in both], kind)[:, -1]
        for one in (runs, against)
    ]
    return np.asarray(ends[0] - ends[1])


def with_error(values: NDArray[np.float64]) -> str:
    """Mean over seeds with its sign and, of several, its standard error: ``+3.1 ± 0.4``."""
    if len(values) == 1:
        return f"{values[0]:+.1f}"
    error = values.std(ddof=1) / len(values) ** 0.5
    return f"{values.mean():+.1f} ± {error:.1f}"


def above_ceiling(run: dict[str, Any]) -> list[tuple[str, str, int, float, float]]:
    """Where a measured coefficient or spread exceeds what is certified; nowhere, or it is a bug.

    The model runs in float32, whose rounding is allowed for, as is that of the kept values.
    """
    found = []
    for place, (n, here) in enumerate(run["measured"].items()):
        for kind, bound, rounding in (("largest", "one", 5e-7), ("spread", "spread", 5e-4)):
            for head, value in enumerate(here[kind]):
                top = run["certified"][bound][head][place]
                if value > top * (1 + 1e-5) + rounding:
                    found.append((n, kind, head, value, top))
    return found


def _of_kind(groups: NDArray[np.float64], kind: str) -> NDArray[np.float64]:
    """Groups are the last axis: needle and recall, each with an answer and without."""
    picked = {"answered": groups[..., ::2], "nothing": groups[..., 1::2]}
    picked |= {"needle": groups[..., :1], "recall": groups[..., 2:3]}
    return np.asarray(picked[kind].mean(axis=-1))
