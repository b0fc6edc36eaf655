"""Audits that can be interrupted: finished layers as JSON lines, and how to go on from them.

The first line names the audit by a digest of everything that its numbers depend on: the version of
this package, the configuration, the tensors, the files' sizes and times (or the commit), and the
questions. Every further line holds one layer. A line that was cut off is done again.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dispersion.enclosure import Enclosure, Estimate
from dispersion.errors import ArgumentError, OutputError
from dispersion.verdict import Capacity, HeadResult, Result, Target, Verdict

if TYPE_CHECKING:
    from dispersion.architectures import LayerPlan
    from dispersion.checkpoint import Checkpoint
    from dispersion.tasks import Work

FORMAT = "dispersion.partial/1"


class Partial:
    """The finished layers of one audit, in a file that grows.

    Args:
        path: the file; made where there is none.
        work: the audit.

    Raises:
        ArgumentError: the file is something else, or belongs to another audit.
        OutputError: it cannot be read or written.

    """

    def __init__(self, path: str | os.PathLike[str], work: Work) -> None:
        self._path = Path(path)
        self._found: dict[tuple[int, str], list[HeadResult]] = {}
        head = {"format": FORMAT, "audit": digest(work), "source": work.checkpoint.source}
        try:
            lines, whole = self._lines()
            if lines:
                self._check_head(lines[0], head)
            for line in lines[1:]:
                heads = [_head(item) for item in line["heads"]]
                self._found[line["layer"], line["module"]] = heads
            if whole is not None:
                os.truncate(self._path, whole)
            self._file = self._path.open("a", encoding="utf-8")
            if not lines:
                self._write(head)
        except (KeyError, TypeError, AttributeError) as error:
            raise ArgumentError(self._strange()) from error
        except OSError as error:
            raise self._failure(error) from error

    def __enter__(self) -> Partial:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def finished(self, layer: LayerPlan) -> list[HeadResult] | None:
        """The heads of a layer that is done, else None."""
        return self._found.get((layer.layer, layer.module))

    def add(self, layer: LayerPlan, heads: list[HeadResult]) -> None:
        """Keep a layer; it is on disk when this returns.

        Raises:
            OutputError: it cannot be written.

        """
        items = [asdict(head) for head in heads]
        try:
            self._write({"layer": layer.layer, "module": layer.module, "heads": items})
        except OSError as error:
            raise self._failure(error) from error

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, default=_plain) + "\n")
        self._file.flush()
        with suppress(OSError):  # a pipe or the like
            os.fsync(self._file.fileno())

    def _lines(self) -> tuple[list[dict[str, Any]], int | None]:
        """The lines that are whole, and the bytes they take where something follows them."""
        if not self._path.exists():
            return [], None
        raw = self._path.read_bytes()
        end = raw.rfind(b"\n") + 1
        try:
            lines = [json.loads(line) for line in raw[:end].splitlines()]
        except (ValueError, RecursionError) as error:
            raise ArgumentError(self._strange()) from error
        if not lines and raw and not raw.startswith(b'{"format": "dispersion.partial'):
            raise ArgumentError(self._strange())
        return lines, None if end == len(raw) else end

    def _check_head(self, found: dict[str, Any], wanted: dict[str, Any]) -> None:
        if found["format"] != FORMAT:
            raise ArgumentError(self._strange())
        if found["audit"] != wanted["audit"]:
            msg = (
                f"resume file {str(self._path)!r} belongs to another audit: the model, its files, "
                "the questions or the version differ. Name another file, or delete this one."
            )
            raise ArgumentError(msg)

    def _strange(self) -> str:
        return (
            f"resume file {str(self._path)!r} must hold the finished layers of an audit "
            f"({FORMAT}). Got something else; name another file."
        )

    def _failure(self, error: OSError) -> OutputError:
        return OutputError(
            f"resume file {str(self._path)!r} cannot be used: {error.strerror or error}."
        )


def digest(work: Work) -> str:
    """A name for everything that the numbers of an audit depend on, but the choice of layers."""
    checkpoint = work.checkpoint
    parts = {
        "version": version("dispersion"),
        "config": checkpoint.config,
        "tensors": [
            [i.name, i.dtype, i.shape] for _, i in sorted(checkpoint.infos.items(), key=_name)
        ],
        "files": _files(checkpoint),
        "origin": dict(checkpoint.origin),
        "targets": [asdict(target) for target in work.targets],
        "heads": None if work.heads is None else sorted(work.heads),
        "offsets": work.offsets,
        # Every device gives the same numbers; the CPU's own code rounds otherwise.
        "device": work.device is not None,
    }
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _files(checkpoint: Checkpoint) -> dict[str, tuple[int, int]]:
    """Size and time of change of every local file."""
    found = {}
    for file in sorted({info.file for info in checkpoint.infos.values()}):
        with suppress(OSError, ValueError):
            status = Path(file).stat()
            found[file] = (status.st_size, status.st_mtime_ns)
    return found


def _name(item: tuple[str, Any]) -> str:
    return item[0]


def _plain(value: Any) -> Any:
    if isinstance(value, Verdict):
        return value.value
    raise TypeError(type(value))


def _head(item: dict[str, Any]) -> HeadResult:
    capacity = item["capacity"]
    if capacity is not None:
        estimate = capacity["log_estimate"]
        capacity = Capacity(
            capacity["log_upper"], None if estimate is None else Estimate(**estimate)
        )
    return HeadResult(
        **item
        | {
            "spread": Enclosure(**item["spread"]),
            "results": tuple(
                Result(Target(**r["target"]), Enclosure(**r["ceiling"]), Verdict(r["verdict"]))
                for r in item["results"]
            ),
            "notes": tuple(item["notes"]),
            "capacity": capacity,
        }
    )
