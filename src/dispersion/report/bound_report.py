"""What scalars say about one row, for people and as JSON (bound-1.schema.json)."""

from __future__ import annotations

import json
import math
from importlib import resources
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from dispersion.lengths import format_length
from dispersion.report.layout import Style, paragraph
from dispersion.report.rounding import print_largest_length, round_down, round_up
from dispersion.report.wording import percent, plural

if TYPE_CHECKING:
    from dispersion.bounding import Row, RowBound, Statement

SCHEMA = "dispersion.bound/1"
SCHEMA_FILE = "bound-1.schema.json"
DIGITS = 8

_VERDICTS = {
    "ruled_out": "Ruled out: no such row gives {share} to {items}.",
    "reached": "Reached: some such row gives {share} to {items}.",
    "not_ruled_out": "Not ruled out, nor proved: {share} for {items}.",
}


def bound_schema() -> dict[str, Any]:
    """Read the JSON Schema (draft 2020-12) that every bound of this version satisfies."""
    text = resources.files("dispersion.report").joinpath(SCHEMA_FILE).read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def bound_to_json(bound: RowBound) -> str:
    """Write the bound as indented ASCII JSON text that ends with a line end."""
    row = bound.row
    found = {
        "schema": SCHEMA,
        "version": version("dispersion"),
        "given": {
            "length": row.length,
            "spread": _number(row.spread),
            "norm": _number(row.norm),
            "coefficient": row.coefficient,
            "temperature": row.temperature,
            "items": row.items,
            "soft_cap": row.soft_cap,
        },
        "statements": [
            {
                "name": each.name,
                "side": each.side,
                "value": _number(each.value),
                "theorem": each.theorem,
            }
            for each in bound.statements
        ],
        "verdict": bound.verdict,
    }
    return json.dumps(found, indent=1, allow_nan=False) + "\n"


def render_bound(bound: RowBound, *, width: int = 80, style: Style | None = None) -> str:
    """Write the bound as text of at most `width` columns."""
    style = style or Style()
    lines = [style.bold(line) for line in paragraph(_given(bound.row), width)]
    rows = [(*_words(each, bound.row), each.theorem) for each in bound.statements]
    name, value = (max(len(row[i]) for row in rows) for i in (0, 1))
    lines += [f"  {row[0]:<{name}}  {row[1]:>{value}}  {row[2]}" for row in rows]
    if bound.verdict is not None:
        share = percent(bound.row.coefficient or 0.0)
        text = _VERDICTS[bound.verdict].format(share=share, items=_items(bound.row))
        lines += ["", *paragraph(text, width)]
    return "\n".join(lines) + "\n"


def _given(row: Row) -> str:
    length = "any number of" if row.length is None else format_length(row.length)
    text = f"A row of {length} {'item' if row.length == 1 else 'items'}"
    limits = []
    if row.spread is not None:
        before = " before the cap" if row.soft_cap is not None else ""
        limits.append(f"spread by at most {row.spread:.10g}{before}")
    if row.norm is not None:
        limits.append(f"have a centred 2-norm of at most {row.norm:.10g}")
    if row.soft_cap is not None:
        limits.append(f"are soft-capped at {row.soft_cap:.10g}")
    if limits:
        text += f" whose logits {' and '.join(limits)}"
    if row.temperature != 1:
        text += f", at temperature {row.temperature:.10g}"
    if row.coefficient is not None:
        text += f", to give {percent(row.coefficient)} to {_items(row)}"
    return text


def _items(row: Row) -> str:
    return "one item" if row.items == 1 else f"{plural(row.items, 'item')} together"


def _words(statement: Statement, row: Row) -> tuple[str, str]:
    value = statement.value
    text = (round_up if statement.side == "upper" else round_down)(value, DIGITS)
    own = _items(row)
    if statement.name == "reachable_length":
        return "possible up to a length of", print_largest_length(value)
    if statement.name == "temperature":
        if math.isinf(value):
            return "possible up to a temperature of", "any"
        if value == 0:
            return "possible up to a temperature of", "none"
        return "possible up to a temperature of", text
    if statement.name == "required_spread_before_cap" and math.isinf(value):
        return "spread needed before the cap", "none is enough"
    words = {
        "spread": "spread after the cap is at most",
        "ceiling": f"share of {own} is at most",
        "published_ceiling": "by the published bound e^spread/n",
        "floor": f"share of {own} is at least",
        "entropy": "entropy (nats) is at least",
        "required_spread": "spread needed, at least",
        "required_spread_before_cap": "spread needed before the cap, at least",
    }
    return words[statement.name], text


def _number(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "inf" if value > 0 else "-inf"
