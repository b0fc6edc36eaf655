"""The report a person reads: the answer first, then per layer or head, then what has no answer.

Plain text without boxes; emphasis only where the caller's style has it. Upper bounds are printed
rounded up and lower bounds rounded down.
"""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from dispersion.lengths import format_length
from dispersion.report import wording
from dispersion.report.layout import Column, Style, clean, paragraph, table
from dispersion.report.rounding import (
    print_capacity,
    print_ceiling,
    print_largest_length,
    print_range,
    round_down,
    round_up,
)
from dispersion.report.token_table import token_table
from dispersion.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dispersion.previewing import DryRun
    from dispersion.results import Audit, Refused, Skipped
    from dispersion.verdict import HeadResult, Result

HEAD_ROWS = 16  # up to so many heads are shown one by one
Item = TypeVar("Item")
_NAMES = 2  # so many names of one reason are listed; JSON has them all

WORDS = {
    Verdict.RULED_OUT: "cannot",
    Verdict.WITNESSED: "can",
    Verdict.UNRESOLVED: "unknown",
    Verdict.UNBOUNDED: "unbounded",
}


def render(
    audit: Audit, *, width: int = 80, style: Style | None = None, per_head: bool | None = None
) -> str:
    """Write the audit as text of at most `width` columns, names and numbers permitting.

    Args:
        audit: what to report.
        width: columns of the terminal.
        style: emphasis; none by default.
        per_head: whether to show heads one by one rather than by layer; by default up to
            16 heads are.
    """
    style = style or Style()
    if per_head is None:
        per_head = len(audit.heads) <= HEAD_ROWS
    blocks = [
        title(audit, width, style),
        _answer(audit, width, style),
        _sentences(audit, width),
        _details(audit, width, style, per_head=per_head),
        token_table(audit, width, style),
        _notes(audit, width),
        without_answer(audit, width),
        [style.dim(line) for line in paragraph(wording.LEGEND, width)] if audit.heads else [],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def title(audit: Audit | DryRun, width: int, style: Style) -> list[str]:
    """Source and model, in one line if it fits."""
    source, facts = clean(audit.source), wording.headline(audit)
    if len(source) + 2 + len(facts) <= width:
        return [style.bold(source) + (f"  {facts}" if facts else "")]
    return [style.bold(source), *paragraph(facts, width, "  ")]


def _answer(audit: Audit, width: int, style: Style) -> list[str]:
    if not audit.targets:
        return []
    if not audit.heads:
        return [style.bold("No head could be checked.")]
    counts = [audit.counts(index) for index in range(len(audit.targets))]
    shown = [v for v in Verdict if v is not Verdict.UNBOUNDED or any(c[v] for c in counts)]
    columns = [
        Column("length", [format_length(target.length) for target in audit.targets]),
        *_varying("target", [wording.percent(target.coefficient) for target in audit.targets]),
        *_varying("sinks", [str(target.sink_tokens) for target in audit.targets]),
        *_varying("retrieval", [target.retrieval for target in audit.targets]),
        *(Column(WORDS[v], [f"{c[v] or '-'}" for c in counts]) for v in shown),
        Column("highest ceiling", [_highest(audit, i) for i in range(len(audit.targets))], 2),
    ]
    if all(target.retrieval == "one" for target in audit.targets):
        needed = [round_down(wording.required_logits(target).lower) for target in audit.targets]
        columns.append(Column("logits needed", needed, 1))
    lines, _ = table(columns, width, style)
    heads = wording.plural(len(audit.heads), "head")
    return [style.bold(wording.question(audit.targets)) + f"  ({heads})", *lines]


def _highest(audit: Audit, index: int) -> str:
    result = max((head.results[index] for head in audit.heads), key=lambda r: r.ceiling.upper)
    return print_ceiling(result.ceiling.upper, result.target.coefficient)


def _sentences(audit: Audit, width: int) -> list[str]:
    sentences = [
        *wording.limited_by_weights(audit),
        *wording.stops(audit),
        *wording.unbounded(audit),
    ]
    return [line for sentence in sentences for line in paragraph(sentence, width)]


def _details(audit: Audit, width: int, style: Style, *, per_head: bool) -> list[str]:
    if not audit.targets or all(math.isinf(head.spread.upper) for head in audit.heads):
        return []
    longest = max(range(len(audit.targets)), key=lambda i: audit.targets[i].length)
    length = format_length(audit.targets[longest].length)
    heads = sorted(audit.heads, key=lambda head: (head.layer, head.module, head.head))
    groups = [
        list(group) for _, group in groupby(heads, key=lambda head: (head.layer, head.module))
    ]
    rows = [[head] for head in heads] if per_head else groups
    columns = [
        Column("layer", [str(row[0].layer) for row in rows], 99),
        *_varying("module", wording.apart([row[0].module for row in rows]), 99),
        *(
            [Column("head", [str(row[0].head) for row in rows], 99)]
            if per_head
            else _varying("heads", [str(len(row)) for row in rows])
        ),
        *_varying("capped by", [_common({clean(head.cap) for head in row}) for row in rows]),
        *_varying("window", [_common({_window(head) for head in row}) for row in rows]),
        Column("spread", [_spread(row) for row in rows], 8),
        Column("product", [round_up(max(h.paper_spread for h in row)) for row in rows], 2),
    ]
    if all(head.capacity is not None for head in heads):
        columns.append(Column("capacity", [_capacity(row) for row in rows], 5))
    answered = not wording.limited_by_weights(audit)
    if answered:  # else every row would say the same, and a sentence has said it
        reach = [print_largest_length(max(h.largest_length for h in row)) for row in rows]
        ceilings = [_ceiling([h.results[longest] for h in row]) for row in rows]
        columns += [
            Column("stops at", reach),
            Column(f"ceiling at {length}", ceilings),
            _verdicts(rows, longest, per_head=per_head),
        ]
    lines, hidden = table(columns, width, style)
    intro = (
        "By head: largest spread of a row" if per_head else "By layer: the head with the largest"
    )
    intro += ", lower..upper in logits" if per_head else " spread of a row, lower..upper in logits"
    intro += f"{_offsets(heads)}; " + ("" if "product" in hidden else "the looser product bound; ")
    if any(column.title == "capacity" for column in columns):
        intro += "capacity N, of which at most N/p tokens can get p each in any context; "
    intro += f"largest length not ruled out; ceiling and verdict at {length}; " * answered
    intro = intro.removesuffix("; ") + "."
    if not per_head and len({len(row) for row in rows}) == 1:
        intro += f" Each layer has {wording.plural(len(rows[0]), 'head')}."
    if (cap := _common({clean(head.cap) for head in heads})) not in ("mixed", "nothing"):
        intro += f" Capped by {cap}."
    if (window := _common({_window(head) for head in heads})) not in ("mixed", "-"):
        intro += f" A query sees {window} tokens."
    if hidden:
        intro += f" Not shown for want of width: {', '.join(hidden)}."
    return [*paragraph(intro, width), *lines]


def _offsets(heads: Sequence[HeadResult]) -> str:
    kind = _common({clean(head.spread_kind) for head in heads})
    return "" if kind == "mixed" else f" over {kind} offsets"


def _varying(title: str, cells: list[str], keep: int = 3) -> list[Column]:
    """Make a column only where its cells differ; one value for all is said in words instead."""
    return [Column(title, cells, keep)] if len(set(cells)) > 1 else []


def _common(values: set[str]) -> str:
    return next(iter(values)) if len(values) == 1 else "mixed"


def _window(head: HeadResult) -> str:
    return "-" if head.window is None else format_length(head.window)


def _spread(row: Sequence[HeadResult]) -> str:
    widest = max(row, key=lambda head: head.spread.upper).spread
    return print_range(widest.lower, widest.upper)


def _capacity(row: Sequence[HeadResult]) -> str:
    return print_capacity(max(h.capacity.log_upper for h in row if h.capacity is not None))


def _ceiling(results: Sequence[Result]) -> str:
    target = results[0].target.coefficient
    return print_ceiling(max(result.ceiling.upper for result in results), target)


def _verdicts(rows: Sequence[Sequence[HeadResult]], index: int, *, per_head: bool) -> Column:
    if per_head:
        return Column("verdict", [WORDS[row[0].results[index].verdict] for row in rows])
    order: list[Verdict] = [v for v in Verdict if v is not Verdict.UNBOUNDED]
    if any(head.results[index].verdict is Verdict.UNBOUNDED for row in rows for head in row):
        order.append(Verdict.UNBOUNDED)
    return Column(
        "/".join(WORDS[v] for v in order),
        [
            "/".join(str(sum(h.results[index].verdict is v for h in row)) for v in order)
            for row in rows
        ],
    )


def _notes(audit: Audit, width: int) -> list[str]:
    heads: dict[str, int] = {}
    for head in audit.heads:
        for note in head.notes:
            heads[note] = heads.get(note, 0) + 1
    lines = [f"Note ({wording.plural(count, 'head')}): {clean(n)}" for n, count in heads.items()]
    return [part for line in lines for part in paragraph(line, width, hanging="  ")]


def without_answer(audit: Audit | DryRun, width: int) -> list[str]:
    """What was left out, refused and skipped."""
    lines = []
    for reason, lengths in _by_reason([(reason, length) for length, reason in audit.left_out]):
        asked = ", ".join(format_length(length) for length in lengths)
        lines += paragraph(f"Left out: {asked}: {clean(reason)}", width, hanging="  ")
    if audit.refused:
        lines.append(f"Refused: {wording.plural(len(audit.refused), 'item')} could not be checked")
        lines += _grouped(audit.refused, width)
    if audit.skipped:
        total = sum(each.count for each in audit.skipped)
        lines.append(
            f"Skipped: {wording.plural(total, 'tensor')} that attention logits do not need"
        )
        lines += _grouped(audit.skipped, width)
    return lines


def _grouped(items: Sequence[Skipped | Refused], width: int) -> list[str]:
    lines = []
    for reason, group in _by_reason([(item.reason, item) for item in items]):
        count = sum(getattr(item, "count", 1) for item in group)
        names = ", ".join(clean(item.name) for item in group[:_NAMES])
        more = f" and {len(group) - _NAMES} more" if len(group) > _NAMES else ""
        lines += paragraph(f"{count:,} {clean(reason)}: {names}{more}", width, "  ", "    ")
    return lines


def _by_reason(pairs: Sequence[tuple[str, Item]]) -> list[tuple[str, list[Item]]]:
    groups: dict[str, list[Item]] = {}
    for reason, item in pairs:
        groups.setdefault(reason, []).append(item)
    return list(groups.items())
