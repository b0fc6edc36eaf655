"""Arrays from the kept runs of the QK-norm experiment, for figures and tests; without JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

KINDS = ("answered", "nothing", "all")
"""Queries that have an answer, those that have none, and all; both tasks alike in each."""


def runs_of(
    data: dict[str, Any], qk_norm: str, remedy: str, steps: int | None = None
) -> list[dict[str, Any]]:
    """The runs of a variant, by seed; by default those trained for as long as all variants are."""
    asked = (qk_norm, remedy, steps or data["settings"]["steps"])
    found = [r for r in data["runs"] if (r["qk_norm"], r["remedy"], r["steps"]) == asked]
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


def _of_kind(groups: NDArray[np.float64], kind: str) -> NDArray[np.float64]:
    """Groups are the last axis: needle and recall, each with an answer and without."""
    picked = {"answered": groups[..., ::2], "nothing": groups[..., 1::2]}
    picked |= {"needle": groups[..., :1], "recall": groups[..., 2:3]}
    return np.asarray(picked[kind].mean(axis=-1))
