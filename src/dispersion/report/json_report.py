"""The audit as JSON, in the versioned shape of audit-1.schema.json.

The shape only grows: within ``dispersion.audit/1`` no key is renamed, removed or given another
meaning. Infinity is the string ``"inf"``; NaN never appears.
"""

from __future__ import annotations

import json
import math
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeVar

from dispersion.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dispersion.enclosure import Enclosure
    from dispersion.previewing import DryRun
    from dispersion.results import Audit, Refused, Skipped
    from dispersion.verdict import HeadResult, Target, Token, VocabularyBound

Named = TypeVar("Named", "Skipped", "Refused")

SCHEMA = "dispersion.audit/1"
SCHEMA_FILE = "audit-1.schema.json"


def json_schema() -> dict[str, Any]:
    """Read the JSON Schema (draft 2020-12) that every report of this version satisfies."""
    text = resources.files("dispersion.report").joinpath(SCHEMA_FILE).read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def audit_to_json(audit: Audit) -> str:
    """Write the audit as indented ASCII JSON text that ends with a line end."""
    return json.dumps(audit_to_dict(audit), indent=1, allow_nan=False) + "\n"


def audit_to_dict(audit: Audit) -> dict[str, Any]:
    """Turn the audit into plain dicts, lists, strings and finite numbers, in a stable order."""
    heads = sorted(audit.heads, key=lambda head: (head.layer, head.module, head.head))
    return {
        "schema": SCHEMA,
        "version": str(audit.provenance.get("version", "unknown")),
        "source": audit.source,
        "model": plain(audit.model),
        "targets": [target_to_dict(target) for target in audit.targets],
        "heads": [_head(head) for head in heads],
        **without_answer(audit),
        "summary": _summary(audit),
        "provenance": plain(audit.provenance),
    }


def without_answer(audit: Audit | DryRun) -> dict[str, Any]:
    """What was skipped, refused and left out, in a stable order."""
    return {
        "skipped": [
            {"name": each.name, "reason": each.reason, "count": each.count}
            for each in _by_name(audit.skipped)
        ],
        "refused": [{"name": each.name, "reason": each.reason} for each in _by_name(audit.refused)],
        "left_out": [
            {"length": length, "reason": reason} for length, reason in sorted(audit.left_out)
        ],
    }


def target_to_dict(target: Target) -> dict[str, Any]:
    """A question."""
    return {
        "length": target.length,
        "coefficient": target.coefficient,
        "retrieval": target.retrieval,
        "sink_tokens": target.sink_tokens,
    }


def _head(head: HeadResult) -> dict[str, Any]:
    return {
        "module": head.module,
        "layer": head.layer,
        "head": head.head,
        "kv_head": head.kv_head,
        "spread": _enclosure(head.spread),
        "spread_kind": head.spread_kind,
        "paper_spread": _number(head.paper_spread),
        "cap": head.cap,
        "window": head.window,
        "capacity": _capacity(head),
        "largest_length": _number(head.largest_length),
        "results": [
            {
                **target_to_dict(result.target),
                "ceiling": _enclosure(result.ceiling),
                "verdict": result.verdict.value,
            }
            for result in head.results
        ],
        "notes": list(head.notes),
        "inputs": head.inputs,
        "vocabulary": _vocabulary(head.vocabulary),
    }


def _vocabulary(bound: VocabularyBound | None) -> dict[str, Any] | None:
    if bound is None:
        return None
    return {
        "tokens": bound.tokens,
        "largest": _number(bound.largest),
        "median": _number(bound.median),
        "ruled_out": list(bound.ruled_out),
        "ball": _number(bound.ball),
        "method": bound.method,
        "query": _token(bound.query),
        "top": _token(bound.top),
        "bottom": _token(bound.bottom),
    }


def _token(token: Token | None) -> dict[str, Any] | None:
    if token is None:
        return None
    return {
        "id": token.id,
        "position": token.position,
        "type": token.type,
        "text": token.text,
    }


def _capacity(head: HeadResult) -> dict[str, Any] | None:
    if head.capacity is None:
        return None
    estimate = head.capacity.log_estimate
    return {
        "log_upper": _number(head.capacity.log_upper),
        "log_estimate": None if estimate is None else _number(estimate.value),
    }


def _summary(audit: Audit) -> dict[str, Any]:
    return {
        "complete": audit.complete,
        "layers": len({(head.layer, head.module) for head in audit.heads}),
        "heads": len(audit.heads),
        "skipped": sum(each.count for each in audit.skipped),
        "refused": len(audit.refused),
        "verdicts": [
            {
                **target_to_dict(target),
                **{verdict.value: audit.counts(index)[verdict] for verdict in Verdict},
            }
            for index, target in enumerate(audit.targets)
        ],
    }


def _by_name(items: Sequence[Named]) -> list[Named]:
    return sorted(items, key=lambda item: (item.name, item.reason))


def _enclosure(enclosure: Enclosure) -> dict[str, Any]:
    return {"lower": _number(enclosure.lower), "upper": _number(enclosure.upper)}


def _number(value: float) -> float | int | str:
    if math.isnan(value):
        msg = "a bound is never NaN"
        raise ValueError(msg)
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return int(value) if isinstance(value, int) else float(value)


def plain(value: Any) -> Any:
    """Facts about a model as JSON can hold them; a NaN from a config becomes null."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else _number(value)
    return str(value)
