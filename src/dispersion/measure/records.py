"""Measured documents as JSON lines that a later run goes on from.

The first line describes the run; every further line is one document. A line that was cut off is
measured again. Numbers have seven digits, as float32 has; null stands for what is not finite.
"""

from __future__ import annotations

import json
import math
import os
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.errors import ArgumentError, OutputError
from dispersion.measure.line_checks import is_document

if TYPE_CHECKING:
    from dispersion.measure.documents import Document
    from dispersion.measure.results import LayerStatistics, RowStatistics

FORMAT = "dispersion.measure/1"
FIELDS = (
    "items",
    "spread",
    "effective_spread",
    "entropy",
    "coefficient",
    "log_odds",
    "sink_share",
    "mass",
    "profile",
)


def schema(name: str = "measure-1") -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a line of such a file; "measure-summary-1" of a summary."""
    text = resources.files("dispersion.measure").joinpath(f"{name}.schema.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def record(document: Document, layers: dict[int, LayerStatistics]) -> dict[str, Any]:
    """One document's line: per layer arrays over heads, then over chosen queries."""
    return {
        "document": document.name,
        "tokens": len(document.tokens),
        "needle": document.needle,
        "layers": [_layer(index, layers[index]) for index in sorted(layers)],
    }


def _layer(index: int, found: LayerStatistics) -> dict[str, Any]:
    return {
        "layer": index,
        "rows": found.rows.tolist(),
        "marks": list(found.marks),
        "mean": _rows(found.mean),
        "largest": _rows(found.largest),
        "token_means": plain(found.token_means),
        "positions": found.positions.tolist(),
        "chosen": _rows(found.chosen),
        "octaves": {
            "index": found.octaves.index.tolist(),
            "rows": found.octaves.rows.tolist(),
            "items": plain(found.octaves.items),
            "mean": {
                name: plain(getattr(found.octaves.mean, name))
                for name in FIELDS
                if name not in ("items", "profile")
            },
        },
        "gaps": plain(found.gaps),
        "gap_counts": plain(found.gap_counts),
        "accumulation_scale": plain(found.accumulation_scale),
        "logit_error": plain(found.logit_error),
        "sum_error": plain(np.asarray(found.sum_error)),
    }


def _rows(rows: RowStatistics) -> dict[str, Any]:
    return {name: plain(getattr(rows, name)) for name in FIELDS}


def plain(values: Any) -> Any:
    """Nested lists that JSON can hold."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim:
        return [plain(x) for x in array]
    value = float(array)
    return float(f"{value:.7g}") if math.isfinite(value) else None


class Records:
    """A growing file of measured documents.

    Args:
        path: the file; made where there is none.
        run: what the numbers depend on, JSON-able.

    Raises:
        ArgumentError: the file is something else, or belongs to another run.
        OutputError: it cannot be read or written.
    """

    def __init__(self, path: str | os.PathLike[str], run: dict[str, Any]) -> None:
        self._path = Path(path)
        head = {"format": FORMAT, "run": json.loads(json.dumps(run))}
        lines, whole = ([], 0) if self._cut_off_at_once(head) else read_lines(self._path)
        if lines and lines[0] != head:
            msg = (
                f"output {str(path)!r} belongs to another run or is no file of measurements: "
                f"name another file."
            )
            raise ArgumentError(msg)
        self.found: dict[str, dict[str, Any]] = {x["document"]: x for x in lines[1:]}
        try:
            if whole is not None:
                os.truncate(self._path, whole)
            self._file = self._path.open("a", encoding="utf-8")
        except OSError as error:
            raise OutputError(_unwritable(self._path, error)) from None
        if not lines:
            self._write(head)

    def _cut_off_at_once(self, head: dict[str, Any]) -> bool:
        """Whether the file is the beginning of this run's first line, and no more."""
        try:
            data = self._path.read_bytes() if self._path.is_file() else b""
        except OSError as error:
            raise OutputError(_unwritable(self._path, error)) from None
        return bool(data) and data != _text(head) and _text(head).startswith(data)

    def add(self, line: dict[str, Any]) -> None:
        """Keep one document; it is on disk afterwards."""
        self._write(line)
        self.found[line["document"]] = line

    def close(self) -> None:
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        try:
            self._file.write(_text(line).decode("utf-8"))
            self._file.flush()
        except OSError as error:
            raise OutputError(_unwritable(self._path, error)) from None


def read_lines(path: Path) -> tuple[list[dict[str, Any]], int | None]:
    """Whole lines of a file of measurements, and where they end if something is cut off there.

    Raises:
        ArgumentError: the file is something else.
        OutputError: it cannot be read.
    """
    try:
        data = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise OutputError(_unwritable(path, error)) from None
    end = data.rfind(b"\n") + 1
    try:
        lines = [json.loads(line) for line in data[:end].splitlines()]
        good = all(is_document(line) for line in lines[1:])
        good = good and all(isinstance(line, dict) for line in lines[:1])
    except (ValueError, RecursionError):
        good = False
    if not good or (lines and lines[0].get("format") != FORMAT) or (data and not lines):
        msg = (
            f"file {str(path)!r} must hold measurements, line by line as "
            "`dispersion measure --out` writes them. It does not: name another file."
        )
        raise ArgumentError(msg)
    return lines, end if end < len(data) else None


def _text(line: dict[str, Any]) -> bytes:
    return (json.dumps(line, allow_nan=False) + "\n").encode("utf-8")


def _unwritable(path: Path, error: OSError) -> str:
    return f"output {str(path)!r} cannot be read or written ({error.strerror or error})."
