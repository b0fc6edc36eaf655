"""The table of bounds over real token ids, beside those over the ball of arbitrary inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispersion.lengths import format_length
from dispersion.report.layout import Column, Style, clean, paragraph, table
from dispersion.report.rounding import round_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dispersion.results import Audit
    from dispersion.verdict import Token, VocabularyBound

_LONGEST = 14  # characters of a token's text


def token_table(audit: Audit, width: int, style: Style) -> list[str]:
    """Lines of the table, one row per head that was asked about token ids; none if none was."""
    found = [(head, head.vocabulary) for head in audit.heads if head.vocabulary is not None]
    if not found:
        return []
    bounds = [bound for _, bound in found]
    columns = [
        Column("layer", [str(head.layer) for head, _ in found]),
        Column("head", [str(head.head) for head, _ in found]),
        Column("largest", [round_up(bound.largest) for bound in bounds]),
        Column("median", [round_up(bound.median) for bound in bounds]),
        Column("ball", [round_up(bound.ball) for bound in bounds]),
        *_cannot(audit, bounds),
        Column("query", [_shown(bound.query) for bound in bounds], 3),
        Column("top key", [_shown(bound.top) for bound in bounds], 2),
    ]
    if any(bound.bottom is not None for bound in bounds):
        columns.append(Column("bottom key", [_shown(bound.bottom) for bound in bounds], 1))
    lines, hidden = table(columns, width, style)
    intro = _intro(audit)
    if hidden:
        intro += f" Not shown for want of width: {', '.join(hidden)}."
    return [*paragraph(intro, width), *lines]


def _intro(audit: Audit) -> str:
    bounds = [head.vocabulary for head in audit.heads if head.vocabulary is not None]
    text = (
        f"Inputs are the {bounds[0].tokens:,} token ids: bound on the spread of a row, in logits, "
        "for the query token with the largest and for the median one, beside the bound for "
        "arbitrary inputs (ball); "
    )
    if audit.targets:
        text += "the share of query tokens that cannot reach the target, proved one by one; "
    text += "the tokens with the largest bound"
    if any(bound.query.text is not None for bound in bounds):
        text += ", by id and text"
    if any(bound.query.position is not None for bound in bounds):
        text += ", with @position (and /type)"
    return text + "."


def _cannot(audit: Audit, bounds: Sequence[VocabularyBound]) -> list[Column]:
    """The share of query tokens, rounded down, at the longest length asked."""
    if not audit.targets:
        return []
    longest = max(range(len(audit.targets)), key=lambda i: audit.targets[i].length)
    cells = [f"{100 * b.ruled_out[longest] // b.tokens}%" for b in bounds]
    return [Column(f"cannot at {format_length(audit.targets[longest].length)}", cells, 5)]


def _shown(token: Token | None) -> str:
    if token is None:
        return "-"
    place = "" if token.position is None else f"@{token.position}"
    if token.type is not None:
        place += f"/{token.type}"
    text = "" if token.text is None else f" {_short(token.text)!r}"
    return clean(f"{token.id}{place}{text}")


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
