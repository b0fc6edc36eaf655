"""Whether a line of a file of measurements has the shape that its readers count on."""

from __future__ import annotations

import math
from typing import Any

_MOST = 2**53  # integers that a float holds
_NAMES = (
    "items",
    "spread",
    "effective_spread",
    "entropy",
    "coefficient",
    "log_odds",
    "sink_share",
)


def is_document(line: Any) -> bool:
    """Whether a line describes a document as `dispersion.measure/1` has it (its JSON schema)."""
    if not isinstance(line, dict) or not isinstance(line.get("document"), str):
        return False
    needle = line.get("needle")
    return (
        _whole(line.get("tokens"), 1)
        and (needle is None or _row(needle, 2, _whole))
        and isinstance(line.get("layers"), list)
        and bool(line["layers"])
        and all(_is_layer(layer) for layer in line["layers"])
    )


def _is_layer(layer: Any) -> bool:
    if not isinstance(layer, dict) or not _whole(layer.get("layer")):
        return False
    rows, marks = layer.get("rows"), layer.get("marks")
    if not isinstance(rows, list) or not rows or not _row(rows, len(rows), _whole):
        return False
    if not isinstance(marks, list) or not all(isinstance(mark, str) for mark in marks):
        return False
    heads = len(rows)
    for part in ("mean", "largest"):
        found = layer.get(part)
        if not isinstance(found, dict):
            return False
        if not all(_row(found.get(name), heads, _number) for name in _NAMES):
            return False
        if not _row(found["items"], heads, _positive):
            return False
        if not _table(found.get("mass"), heads, len(marks)):
            return False
    return _table(layer.get("token_means"), heads, None) and _octaves(layer, heads, len(marks))


def _octaves(layer: dict[str, Any], heads: int, marks: int) -> bool:
    found = layer.get("octaves")
    if not isinstance(found, dict) or not isinstance(found.get("index"), list):
        return False
    count, mean = len(found["index"]), found.get("mean")
    if not isinstance(mean, dict) or not _row(found.get("rows"), count, _whole):
        return False
    if not all(_whole(index) and index < math.log2(_MOST) for index in found["index"]):
        return False
    masses = mean.get("mass")
    return (
        _row(found.get("items"), count, _positive)
        and all(_table(mean.get(name), heads, count) for name in _NAMES if name != "items")
        and isinstance(masses, list)
        and len(masses) == heads
        and all(_table(mass, count, marks) for mass in masses)
    )


def _whole(value: Any, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST


def _number(value: Any) -> bool:
    """A finite number, or null for what is not finite."""
    if value is None or isinstance(value, bool):
        return value is None
    return isinstance(value, int | float) and abs(value) < math.inf and abs(value) <= 2.0**1000


def _positive(value: Any) -> bool:
    return _number(value) and value is not None and value > 0


def _row(values: Any, length: int, good: Any) -> bool:
    return isinstance(values, list) and len(values) == length and all(good(x) for x in values)


def _table(values: Any, rows: int, columns: int | None) -> bool:
    return (
        isinstance(values, list)
        and len(values) == rows
        and all(
            isinstance(row, list) and _row(row, len(row) if columns is None else columns, _number)
            for row in values
        )
    )
