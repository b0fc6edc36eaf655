"""The audit as CSV: a header, then one line per head and target.

Columns: source, module, layer, head, kv_head, window (tokens; empty for none), cap, spread_kind,
spread_lower, spread_upper, paper_spread (logits), log_capacity (nats; empty unless retrieval any
was asked for), largest_length (tokens; inf where no length is
ruled out), length, coefficient, retrieval, sink_tokens, ceiling_lower, ceiling_upper, verdict,
notes (separated by semicolons). Numbers are written in full: reading one as a float gives the
certified value back.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dispersion.results import Audit

COLUMNS = (
    "source", "module", "layer", "head", "kv_head", "window", "cap", "spread_kind",
    "spread_lower", "spread_upper", "paper_spread", "log_capacity", "largest_length", "length",
    "coefficient", "retrieval", "sink_tokens", "ceiling_lower", "ceiling_upper", "verdict", "notes",
)  # fmt: skip


def audit_to_csv(audit: Audit) -> str:
    """Write the audit as CSV text with a header; lines end with a line feed."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for head in sorted(audit.heads, key=lambda each: (each.layer, each.module, each.head)):
        window = "" if head.window is None else head.window
        place = (audit.source, head.module, head.layer, head.head, head.kv_head, window, head.cap)
        spreads = map(float, (head.spread.lower, head.spread.upper, head.paper_spread))
        capacity = "" if head.capacity is None else float(head.capacity.log_upper)
        about = (*place, head.spread_kind, *spreads, capacity, head.largest_length)
        for result in head.results:
            target, ceiling = result.target, result.ceiling
            asked = (target.length, target.coefficient, target.retrieval, target.sink_tokens)
            answer = (float(ceiling.lower), float(ceiling.upper), result.verdict.value)
            writer.writerow((*about, *asked, *answer, "; ".join(head.notes)))
    return stream.getvalue()
