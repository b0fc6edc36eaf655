"""What is proved of a head beside what was measured of it, and whether the two contradict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion import row
from dispersion.rigor_entropy import min_entropy

if TYPE_CHECKING:
    from dispersion.results import Audit
    from dispersion.verdict import HeadResult

# Relative allowance for the model's own forward pass, which is not exact arithmetic on its weights:
# what rounding of norms, projections and rotations may add up to, not a proved bound.
FORWARD = {"float64": 1e-4, "float32": 1e-4, "bfloat16": 2.0**-6, "float16": 2.0**-6}


@dataclass(frozen=True)
class Certified:
    """Theorems about one head, for rows of any inputs.

    Attributes:
        spread: certified upper bound on every row's spread, in logits.
        ceiling: of the largest coefficient at the longest measured length.
        entropy_floor: of rows of that length without a window, in nats.
        log_capacity: certified upper bound on log N (T13): at most N/p tokens of one context can
            get a share p each, in nats; None where it was not found.
    """

    spread: float
    ceiling: float
    entropy_floor: float
    log_capacity: float | None


def certificates(audit: Audit | None, tokens: int) -> dict[tuple[int, int], Certified]:
    """Of every head with a finite bound, by layer and head.

    Args:
        audit: whose first target is retrieval of one token at this length.
        tokens: the longest measured length.
    """
    if audit is None:
        return {}
    bounded = (head for head in audit.heads if math.isfinite(head.spread.upper))
    return {(head.layer, head.head): _certified(head, tokens) for head in bounded}


def _certified(head: HeadResult, tokens: int) -> Certified:
    spread = head.spread.upper
    keys = tokens if head.window is None else min(tokens, head.window)
    ceiling = head.results[0].ceiling.upper if head.results else 1.0
    floor = min_entropy(keys, spread).lower if keys > 1 else 0.0
    capacity = None if head.capacity is None else float(head.capacity.log_upper)
    return Certified(spread, float(ceiling), float(floor), capacity)


def contradictions(
    layers: list[dict[str, Any]], head: int, proved: Certified, dtype: str
) -> tuple[str, ...]:
    """Which measured values lie beyond the certificate by more than rounding: a bug if any does.

    The largest spread over all rows; and of the chosen rows the largest coefficient against T1 and
    the entropy against T3, at each row's own number of keys.

    Args:
        layers: this layer's record of every document.
        head: within the layer.
        proved: of the same head.
        dtype: what the model computed in.
    """
    found = set()
    for layer in layers:
        error, total = layer["logit_error"][head], layer["sum_error"]
        most = proved.spread * (1 + FORWARD[dtype]) + 2 * error
        if layer["largest"]["spread"][head] > most:
            found.add("spread")
        rows = {
            name: np.array([math.nan if x is None else x for x in layer["chosen"][name][head]])
            for name in ("items", "coefficient", "entropy")
        }
        many = rows["items"] > 1
        n, share, nats = (rows[name][many] for name in ("items", "coefficient", "entropy"))
        if not len(n):
            continue
        room = math.expm1(2 * error + total) + 2.0**-20
        if (share > np.asarray(row.max_coefficient(n, most)) * (1 + room)).any():
            found.add("coefficient")
        floor = np.asarray(row.min_entropy(n, most))
        if (nats < floor - 2 * room * (1 + np.log(n))).any():
            found.add("entropy")
    return tuple(sorted(found))
