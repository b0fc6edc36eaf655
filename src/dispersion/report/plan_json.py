"""A plan as JSON, in the versioned shape of plan-1.schema.json.

Infinity is the string ``"inf"``; what does not apply is null. The shape only grows.
"""

from __future__ import annotations

import json
import math
from importlib import resources
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from dispersion.enclosure import Enclosure

if TYPE_CHECKING:
    from dispersion.planned import HeadPlan, LengthPlan, Need, NormComparison, PlannedHead

SCHEMA = "dispersion.plan/1"
SCHEMA_FILE = "plan-1.schema.json"


def plan_schema() -> dict[str, Any]:
    """Read the JSON Schema (draft 2020-12) that every plan of this version satisfies."""
    text = resources.files("dispersion.report").joinpath(SCHEMA_FILE).read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def plan_to_json(plan: HeadPlan) -> str:
    """Write the plan as indented ASCII JSON text that ends with a line end."""
    return json.dumps(plan_to_dict(plan), indent=1, allow_nan=False) + "\n"


def plan_to_dict(plan: HeadPlan) -> dict[str, Any]:
    """Turn the plan into plain dicts, lists, strings and finite numbers, in a stable order."""
    return {
        "schema": SCHEMA,
        "version": version("dispersion"),
        "head": _head(plan.head),
        "largest_logit": _number(plan.largest_logit),
        "retrievals": list(plan.retrievals),
        "lengths": [_length(row) for row in plan.lengths],
        "longest": {kind: _number(length) for kind, length in plan.longest.items()},
        "needs": [_need(need) for need in plan.needs],
        "norms": None if plan.norms is None else _norms(plan.norms),
    }


def _number(value: float | None) -> float | int | str | None:
    """A number as JSON can hold it; infinity as a string."""
    if value is None or math.isfinite(value):
        return value
    return "inf" if value > 0 else "-inf"


def _head(head: PlannedHead) -> dict[str, Any]:
    gain = head.gain if isinstance(head.gain, Enclosure) else Enclosure.exact(head.gain)
    return {
        "head_dim": head.head_dim,
        "rank": head.directions,
        "norm": head.norm,
        "gain": None if head.norm == "none" else gain.upper,
        "heads": head.heads,
        "key_heads": None if head.heads is None else head.groups,
        "scale": head.scale,
        "sigma": head.sigma,
        "soft_cap": head.soft_cap,
        "sink": head.sink,
        "window": head.window,
        "schedule": str(head.schedule),
        "temperature": head.temperature,
    }


def _length(row: LengthPlan) -> dict[str, Any]:
    estimate = row.flat_estimate
    return {
        "length": row.target.length,
        "coefficient": row.target.coefficient,
        "multiplier": {"lower": row.multiplier.lower, "upper": row.multiplier.upper},
        "spread_upper": _number(row.spread),
        "one": {"ceiling_upper": row.one_ceiling, "ruled_out": row.one_ruled_out},
        "any": {"ceiling_upper": row.any_ceiling, "ruled_out": row.any_ruled_out},
        "capacity": {
            "log_upper": _number(row.log_capacity),
            "upper": _number(row.capacity),
            "log_estimate": None if estimate is None else _number(estimate.value),
        },
        "retrievable": _number(row.retrievable),
        "entropy_lower": row.entropy_floor,
    }


def _need(need: Need) -> dict[str, Any]:
    return {
        "quantity": need.quantity,
        "retrieval": need.retrieval,
        "meets": _number(need.meets),
        "ruled_out": _number(need.ruled_out),
    }


def _norms(norms: NormComparison) -> dict[str, Any]:
    return {
        "heads": norms.heads,
        "key_heads": norms.key_heads,
        "headwise": {
            "one_head_upper": _number(norms.headwise),
            "mean_upper": _number(norms.mean),
            "mean_own_keys_upper": _number(norms.mean),
            "longest": _length(norms.headwise_plan),
        },
        "layerwise": {
            "one_head_upper": _number(norms.layerwise),
            "mean_upper": _number(norms.mean),
            "mean_own_keys_upper": _number(norms.layerwise_mean),
            "longest": _length(norms.layerwise_plan),
        },
    }
