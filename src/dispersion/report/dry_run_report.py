"""What an audit would read, for people, as JSON (dry-run-1.schema.json) and as CSV.

CSV columns: source, layer, module, tensor, dtype, shape (sizes with x between them; empty for a
scalar), bytes, file; one line per tensor.
"""

from __future__ import annotations

import csv
import io
import json
import re
from importlib import resources
from typing import TYPE_CHECKING, Any

from dispersion.report.json_report import plain, target_to_dict, without_answer
from dispersion.report.layout import Column, Style, clean, paragraph, table
from dispersion.report.terminal import title
from dispersion.report.terminal import without_answer as lines_without_answer
from dispersion.report.wording import plural

if TYPE_CHECKING:
    from dispersion.previewing import DryRun, TensorRead

SCHEMA = "dispersion.dry-run/1"
SCHEMA_FILE = "dry-run-1.schema.json"
COLUMNS = ("source", "layer", "module", "tensor", "dtype", "shape", "bytes", "file")


def dry_run_schema() -> dict[str, Any]:
    """Read the JSON Schema (draft 2020-12) that every dry run of this version satisfies."""
    text = resources.files("dispersion.report").joinpath(SCHEMA_FILE).read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def dry_run_to_json(found: DryRun) -> str:
    """Write the dry run as indented ASCII JSON text that ends with a line end."""
    return json.dumps(dry_run_to_dict(found), indent=1, allow_nan=False) + "\n"


def dry_run_to_dict(found: DryRun) -> dict[str, Any]:
    """Turn the dry run into plain dicts, lists, strings and numbers, in a stable order."""
    return {
        "schema": SCHEMA,
        "version": str(found.provenance.get("version", "unknown")),
        "source": found.source,
        "model": plain(found.model),
        "targets": [target_to_dict(target) for target in found.targets],
        "layers": [
            {
                "layer": each.layer,
                "module": each.module,
                "query_heads": each.query_heads,
                "key_heads": each.key_heads,
                "head_dim": each.head_dim,
                "heads": each.heads,
            }
            for each in found.layers
        ],
        "tensors": [
            {
                "name": each.name,
                "dtype": each.dtype,
                "shape": list(each.shape),
                "bytes": each.nbytes,
                "file": each.file,
                "layer": each.layer,
                "module": each.module,
            }
            for each in found.tensors
        ],
        **without_answer(found),
        "summary": {
            "complete": found.complete,
            "layers": len(found.layers),
            "heads": found.heads,
            "tensors": len(found.tensors),
            "bytes": found.total_bytes,
            "checkpoint_bytes": found.checkpoint_bytes,
            "skipped": sum(each.count for each in found.skipped),
            "refused": len(found.refused),
        },
        "provenance": plain(found.provenance),
    }


def dry_run_to_csv(found: DryRun) -> str:
    """Write the tensors as CSV text with a header; lines end with a line feed."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for each in found.tensors:
        shape = "x".join(map(str, each.shape))
        place = (found.source, each.layer, each.module, each.name)
        writer.writerow((*place, each.dtype, shape, each.nbytes, each.file))
    return stream.getvalue()


def render_dry_run(found: DryRun, *, width: int = 80, style: Style | None = None) -> str:
    """Write the dry run as text of at most `width` columns, names permitting."""
    style = style or Style()
    blocks = [
        title(found, width, style),
        [style.bold(line) for line in paragraph(_answer(found), width)],
        _tensors(found, width, style),
        lines_without_answer(found, width),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _answer(found: DryRun) -> str:
    family = clean(str(found.model.get("family", "unknown")))
    return (
        f"Dry run of family {family}, no weights read. A check of {plural(found.heads, 'head')} in "
        f"{plural(len(found.layers), 'layer')} reads "
        f"{plural(len(found.tensors), 'tensor')}: {found.total_bytes:,} of "
        f"{found.checkpoint_bytes:,} bytes."
    )


def _tensors(found: DryRun, width: int, style: Style) -> list[str]:
    """The tensors, those of different layers that are alike in one line."""
    groups: dict[tuple[str, str, tuple[int, ...]], list[TensorRead]] = {}
    for each in found.tensors:
        pattern = re.sub(r"(?<=\.)\d+(?=\.)", "*", clean(each.name))
        groups.setdefault((pattern, each.dtype, each.shape), []).append(each)
    if not groups:
        return []
    same = list(groups.values())
    names = [clean(group[0].name) if len(group) == 1 else key[0] for key, group in groups.items()]
    longest = max(map(len, names))
    columns = [
        Column("tensor".ljust(longest), [name.ljust(longest) for name in names]),
        Column("tensors", [f"{len(group):,}" for group in same], 3),
        Column("dtype", [clean(group[0].dtype) for group in same], 4),
        Column("shape", ["x".join(map(str, group[0].shape)) for group in same], 5),
        Column("bytes", [f"{sum(each.nbytes for each in group):,}" for group in same], 6),
    ]
    lines, _ = table(columns, width, style)
    return lines
