"""A table of models, one a row: what goes together with a score? Estimates.

Columns of numbers are taken as they are; a column of two to four words becomes one of 0 and 1 for
each word; a column "records" names files of measurements, whose means over heads become columns.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.errors import ArgumentError
from dispersion.measure.samples import Correlation, correlation

if TYPE_CHECKING:
    from collections.abc import Mapping

RECORDS = "records"
MOST_WORDS = 4
FEWEST_MODELS = 3


@dataclass(frozen=True)
class Related:
    """A column of the table beside the score.

    Attributes:
        name: of the column; "norm=post" where 1 stands for that word and 0 for any other.
        found: how the two go together, over the models that have both.
    """

    name: str
    found: Correlation


def read_models(path: str | Path) -> list[dict[str, str]]:
    """The rows of a CSV file, with what its files of measurements say.

    Raises:
        ArgumentError: a file that is missing, no CSV, or no file of measurements.
    """
    place = Path(path)
    try:
        # Spreadsheets begin their files with a byte order mark.
        with place.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines, strict=True)
            names = list(reader.fieldnames or ())
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        msg = f"table {str(path)!r} cannot be read as CSV ({error})."
        raise ArgumentError(msg) from None
    if not rows or any(None in row or None in row.values() for row in rows):
        msg = f"table {str(path)!r} must have a line of names, and as many cells in every line."
        raise ArgumentError(msg)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        msg = f"table {str(path)!r} must name every column once. Got {twice[0]!r} twice."
        raise ArgumentError(msg)
    return [_with_records(row, place.parent) for row in rows]


def _with_records(row: dict[str, str], folder: Path) -> dict[str, str]:
    if not row.get(RECORDS):
        return row
    from dispersion.measure.records import read_lines
    from dispersion.measure.summary import summarise

    path = folder / row[RECORDS]
    lines = read_lines(path)[0][1:] if path.is_file() else []
    if not lines:
        msg = f"records {str(path)!r} must be a file of measurements with at least one document."
        raise ArgumentError(msg)
    heads = summarise(lines)
    means = {
        "entropy": [x.entropy for x in heads],
        "mean coefficient": [x.mean_coefficient for x in heads],
        "largest spread": [x.spread for x in heads],
        "exponent": [x.exponent[0] for x in heads if x.exponent is not None],
        **{f"share of {mark}": [x.mass[mark] for x in heads] for mark in heads[0].mass},
    }
    return {**row, **{name: f"{np.mean(x):.7g}" for name, x in means.items() if x}}


def relate(
    rows: list[dict[str, str]], score: str, *, level: float = 0.95, resamples: int = 2000
) -> tuple[list[Related], list[tuple[str, str]]]:
    """Every column beside the score, the strongest first; and what was left out, with the reason.

    Args:
        rows: from `read_models`.
        score: name of a column of numbers.
        level: of the bootstrap intervals over models.
        resamples: bootstrap samples.

    Raises:
        ArgumentError: no such column, or one that does not hold numbers.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    if score not in names:
        msg = f"score must name a column: {', '.join(names)}. Got {score!r}."
        raise ArgumentError(msg)
    target = [_number(row.get(score, "")) for row in rows]
    for value, row in zip(target, rows, strict=True):
        if value is None and row.get(score, ""):
            msg = f"score must name a column of finite numbers. {score!r} holds {row[score]!r}."
            raise ArgumentError(msg)
    scored = sum(value is not None for value in target)
    if scored < FEWEST_MODELS:
        msg = f"table must have {FEWEST_MODELS} models or more with a {score!r}. Got {scored}."
        raise ArgumentError(msg)
    found, left = [], []
    for name in names:
        if name in (score, RECORDS):
            continue
        column = _column(rows, name)
        if isinstance(column, str):
            left.append((name, column))
            continue
        for label, values in column:
            pairs = [(x, y) for x, y in zip(values, target, strict=True) if None not in (x, y)]
            try:
                one = correlation(*zip(*pairs, strict=True), level=level, resamples=resamples)
            except (ArgumentError, TypeError):
                left.append((label, f"fewer than {FEWEST_MODELS} models, or one value in all"))
                continue
            found.append(Related(label, one))
    found.sort(key=lambda x: -x.found.r_squared.value.value)
    return found, left


def _column(rows: list[dict[str, str]], name: str) -> list[tuple[str, list[float | None]]] | str:
    """Columns of numbers with their names; or why there are none."""
    cells = [row.get(name, "") for row in rows]
    numbers = [_number(cell) for cell in cells]
    if all(number is not None for number, cell in zip(numbers, cells, strict=True) if cell):
        return [(name, numbers)]
    words = sorted({cell for cell in cells if cell})
    if not 2 <= len(words) <= MOST_WORDS:
        return f"{len(words)} different words"
    return [
        (f"{name}={word}", [float(cell == word) if cell else None for cell in cells])
        for word in (words if len(words) > 2 else words[1:])
    ]


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def relations_as_json(found: list[Related], left: Mapping[str, str], score: str) -> dict[str, Any]:
    """What JSON can hold."""

    def ends(one: Any) -> dict[str, float]:
        return {name: getattr(one, name).value for name in ("value", "lower", "upper")}

    return {
        "format": "dispersion.correlations/1",
        "score": score,
        "columns": [
            {
                "name": x.name,
                "models": x.found.pairs,
                "level": x.found.level,
                "r_squared": ends(x.found.r_squared),
                "rank": ends(x.found.rank),
            }
            for x in found
        ],
        "left_out": dict(left),
    }
