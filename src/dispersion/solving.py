"""Where a question's answer turns from no to yes as one number grows.

Every question here is monotone: once yes, yes for all larger numbers. The two ends returned are
answers that were computed, not interpolated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

FINE = 2.0**-36
_REACH = 200  # doublings tried on either side of 1


class Turn(NamedTuple):
    """The last argument found to say no and the first found to say yes; None where none was."""

    no: float | None
    yes: float | None


def turning_point(holds: Callable[[float], bool], *, distance: float = FINE) -> Turn:
    """Find where `holds` turns true on the positive numbers, within a relative distance.

    Searched within 2^±200; `no` is None where it holds at the low end, `yes` where it does not
    hold at the high end.
    """
    low = high = 1.0
    if holds(1.0):
        while holds(low):
            high, low = low, low / 2
            if low < 2.0**-_REACH:
                return Turn(None, high)
    else:
        while not holds(high):
            low, high = high, high * 2
            if high > 2.0**_REACH:
                return Turn(low, None)
    while high - low > distance * low:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return Turn(low, high)


def whole_turning_point(holds: Callable[[int], bool], first: int, last: int) -> Turn:
    """Find where `holds` turns true on the whole numbers first..last, from neighbours."""
    if holds(first):
        return Turn(None, first)
    low, step = first, 1
    high = min(first + step, last)
    while not holds(high):
        if high == last:
            return Turn(last, None)
        low, step = high, step * 2
        high = min(high + step, last)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return Turn(low, high)
