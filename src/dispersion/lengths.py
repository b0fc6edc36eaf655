"""Lengths as people write them: 4K is 4 * 1024 tokens, 1M is 1024² tokens."""

from __future__ import annotations

import re

from dispersion.errors import ArgumentError

KILO = 1024
MEGA = 1024**2
LONGEST = 2**53  # the last point up to which every whole number is a float
DEFAULT_LENGTHS = (4 * KILO, 16 * KILO, 64 * KILO, 256 * KILO, MEGA)

_LENGTH = re.compile(r"([0-9]+)([kKmM]?)")
_FACTOR = {"": 1, "k": KILO, "m": MEGA}


def parse_length(text: str) -> int:
    """Read one length in tokens: ``32768``, ``32K``, ``128k`` or ``1M``.

    Raises:
        ArgumentError: the text is no whole number of tokens from 1 to 2^53.
    """
    match = _LENGTH.fullmatch(text.strip())
    # 20 digits are past 2^53 already; int() of unlimited text takes quadratic time.
    if match is None or len(match[1].lstrip("0")) > 20:
        msg = (
            "length must be a whole number of tokens from 1 to 2^53, such as 32768, 32K or 1M. "
            f"Got {text[:40]!r}."
        )
        raise ArgumentError(msg)
    length = int(match[1]) * _FACTOR[match[2].lower()]
    if not 1 <= length <= LONGEST:
        msg = f"length must lie between 1 and 2^53 tokens. Got {text[:40]!r}."
        raise ArgumentError(msg)
    return length


def parse_lengths(text: str) -> tuple[int, ...]:
    """Read lengths separated by commas, in the order given.

    Raises:
        ArgumentError: one of them is no length.
    """
    return tuple(parse_length(part) for part in text.split(","))


def format_length(length: int) -> str:
    """Print a length in tokens: ``32K`` or ``1M`` where exact, else ``2,981``."""
    if length >= MEGA and length % MEGA == 0:
        return f"{length // MEGA:,}M"
    if length >= KILO and length % KILO == 0 and length < MEGA * 16:
        return f"{length // KILO}K"
    return f"{length:,}"
