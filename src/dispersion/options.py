"""Option values of the command line, read and checked before anything heavy is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dispersion.errors import ArgumentError
from dispersion.lengths import parse_lengths

if TYPE_CHECKING:
    from collections.abc import Callable

    from dispersion.verdict import Verdict


def lengths_option(flag: str, name: str, help_text: str) -> Callable[[Any], Any]:
    """A repeatable option that reads lengths in tokens, as in ``4K,32768``."""
    return click.option(
        flag, name, callback=reading(read_lengths), multiple=True, metavar="N", help=help_text
    )


def read_lengths(text: str) -> tuple[int, ...]:
    """Read lengths such as ``4K,32768`` in rising order, each once."""
    return tuple(sorted(set(parse_lengths(text))))


def read_indices(text: str) -> frozenset[int]:
    """Read indices such as ``0,3-5``, counted from 0.

    Raises:
        ArgumentError: a part is no index and no rising range.
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not all(end.isascii() and end.isdigit() and len(end) < 7 for end in (first, last)):
            msg = f"indices must look like 0,3-5, counted from 0. Got {text[:40]!r}."
            raise ArgumentError(msg)
        if int(first) > int(last):
            msg = f"a range must rise, as in 3-5. Got {part.strip()!r}."
            raise ArgumentError(msg)
        found.update(range(int(first), int(last) + 1))
    return frozenset(found)


def read_verdicts(text: str) -> frozenset[Verdict]:
    """Read verdicts separated by commas; case and hyphens do not matter."""
    from dispersion.verdict import Verdict  # dataclasses would slow --help down

    known = {verdict.value: verdict for verdict in Verdict}
    names = [name.strip().lower().replace("-", "_") for name in text.split(",")]
    for name in names:
        if name not in known:
            msg = f"a verdict is one of {', '.join(known)}. Got {name[:40]!r}."
            raise ArgumentError(msg)
    return frozenset(known[name] for name in names)


def reading(read: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Make a click callback that reads an option's text, or each text of a repeated option's."""

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        try:
            if isinstance(value, tuple):
                return read(",".join(value)) if value else None
            return None if value is None else read(value)
        except ArgumentError as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return callback
