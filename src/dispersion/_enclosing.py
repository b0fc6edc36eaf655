"""What the statements of `rigor` share: checked arguments and enclosures of monotone functions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dispersion._arrays import check
from dispersion.balls import Number, ends, round_down, round_up
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flint import arb


def between(point: Callable[[float], Any], low: float, high: float) -> Enclosure:
    """Enclose a monotone function from its values at the arguments of its least and largest."""
    return Enclosure(round_down(point(low)), round_up(point(high)))


def clipped(value: Enclosure) -> Enclosure:
    """The part of an enclosure within [0, 1], for a coefficient."""
    # A ball around a number next to 1 may reach past it; the number itself cannot.
    return Enclosure(max(value.lower, 0.0), min(value.upper, 1.0))


def checked(name: str, value: Number) -> tuple[float, float]:
    """Lower and upper end, both held to the rule of the name."""
    low, high = ends(value)
    check(name, low)
    check(name, high)
    return low, high


def count_of(name: str, value: int, *, least: int = 1) -> int:
    """A whole number of any size, or ArgumentError."""
    if isinstance(value, bool) or value != value or value in (math.inf, -math.inf):
        whole = False
    else:
        whole = int(value) == value
    if not whole or value < least:
        msg = f"{name} must be a whole number of at least {least}. Got {value}."
        raise ArgumentError(msg)
    return int(value)


def counts(m: int, n: int, *, name: str = "m") -> tuple[int, int]:
    """A part and its whole as whole numbers, or ArgumentError."""
    n = count_of("n", n)
    m = count_of(name, m, least=0 if name == "m" else 1)
    if m > n:
        msg = f"{name} must not exceed n. Got {name}={m}, n={n}."
        raise ArgumentError(msg)
    return m, n


def whole_part(end: arb) -> int:
    """The integer part of an exact ball."""
    mantissa, exponent = (int(part) for part in end.man_exp())
    return mantissa << exponent if exponent >= 0 else mantissa >> -exponent
