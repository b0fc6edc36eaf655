"""Printed numbers that stay true: upper bounds are rounded up, lower bounds down."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from dispersion.lengths import LONGEST

DIGITS = 4
MOST_DIGITS = 17
_PLAIN_BELOW = 10**7  # larger numbers are printed in scientific notation


def round_up(value: float, digits: int = DIGITS) -> str:
    """Print the smallest number of so many significant digits that is not below `value`."""
    return _print(value, digits, ROUND_CEILING)


def round_down(value: float, digits: int = DIGITS) -> str:
    """Print the largest number of so many significant digits that is not above `value`."""
    return _print(value, digits, ROUND_FLOOR)


def _print(value: float, digits: int, rounding: str) -> str:
    if math.isnan(value):
        msg = "a bound is never NaN"
        raise ValueError(msg)
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == 0:
        return "0"
    exact = Decimal(value)  # a float is a finite decimal: nothing is rounded before the line below
    whole_digits = exact.adjusted() + 1
    if abs(exact) < _PLAIN_BELOW:
        digits = max(digits, whole_digits)
    rounded = Context(prec=digits, rounding=rounding).plus(exact)
    if not -4 <= rounded.adjusted() < 7:
        return f"{rounded:.{digits - 1}e}"
    places = max(0, digits - 1 - rounded.adjusted())
    return f"{rounded:,.{places}f}"


def print_ceiling(upper: float, target: float, digits: int = 3) -> str:
    """Print a ceiling rounded up, with as many digits as show on which side of `target` it lies."""
    text = round_up(upper, digits)
    while upper < target <= float(text) and digits < MOST_DIGITS:
        digits += 1
        text = round_up(upper, digits)
    return text


def print_range(lower: float, upper: float, digits: int = DIGITS) -> str:
    """Print ``lower..upper``, the lower end rounded down and the upper end up."""
    return f"{round_down(lower, digits)}..{round_up(upper, digits)}"


def print_capacity(log_upper: float) -> str:
    """Print a capacity N from an upper bound on its logarithm, rounded up."""
    if log_upper < math.log(_PLAIN_BELOW):
        return f"{math.ceil(math.exp(log_upper) * (1 + 2.0**-40)):,}"
    # N itself may overflow: its power of ten says enough.
    return f"1e+{math.ceil(log_upper / math.log(10) * (1 + 2.0**-40))}"


def print_largest_length(length: float) -> str:
    """Print a largest length that is not ruled out, in tokens; ``any`` where none is."""
    if math.isinf(length):
        return "any"
    if length > LONGEST:
        return ">2^53"
    # No whole number lies between the floor and the length, so the floor says the same.
    return f"{math.floor(length):,}" if length < _PLAIN_BELOW else round_up(length, 3)
