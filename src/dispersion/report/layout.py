"""Plain text that stays readable in 80 columns, in a pipe and with hostile names in it."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

GAP = "  "


@dataclass(frozen=True)
class Style:
    """How text is emphasised: with terminal codes, or not at all."""

    colour: bool = False

    def bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self.colour else text

    def dim(self, text: str) -> str:
        return f"\x1b[2m{text}\x1b[0m" if self.colour else text


@dataclass(frozen=True)
class Column:
    """A right-aligned column; those with the lowest `priority` go first where width is short."""

    title: str
    cells: Sequence[str]
    priority: int = 9

    @property
    def width(self) -> int:
        return max(len(self.title), *(len(cell) for cell in self.cells))


def clean(text: str) -> str:
    """Escape line ends, terminal codes and other characters that do not print."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def paragraph(text: str, width: int, indent: str = "", hanging: str | None = None) -> list[str]:
    """Wrap one paragraph; later lines start with `hanging` (`indent` unless given)."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_on_hyphens=False,
    )


def table(columns: Sequence[Column], width: int, style: Style) -> tuple[list[str], list[str]]:
    """Lines of a table, header first, and the titles of columns that did not fit."""
    kept = list(columns)
    left_out = []
    while len(kept) > 1 and sum(len(GAP) + column.width for column in kept) > width:
        drop = min(kept, key=lambda column: column.priority)
        kept.remove(drop)
        left_out.append(drop.title)
    header = "".join(GAP + column.title.rjust(column.width) for column in kept)
    rows = zip(*(column.cells for column in kept), strict=True)
    lines = [
        "".join(GAP + cell.rjust(column.width) for column, cell in zip(kept, row, strict=True))
        for row in rows
    ]
    return [style.dim(header), *lines], left_out
