"""Exact and ball arithmetic on enclosures, rounded outward to float64.

Sums, products and quotients of floats are computed as exact fractions; everything else in
python-flint's arb. Both turn into an `Enclosure` through `round_down` and `round_up`.
"""

from __future__ import annotations

import math
import threading
from fractions import Fraction
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

import flint
from flint import arb

from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")
Number: TypeAlias = Enclosure | float | int

PRECISION = 192
"""Bits of working precision: float64's 53 with room for logits of 1e5 and counts of 2^63."""

_lock = threading.RLock()


def in_precision(function: Callable[P, T]) -> Callable[P, T]:
    """Run a function at PRECISION bits or more, one thread at a time."""

    # arb's precision is one global of the process: without the lock another thread would lower it
    # in mid-computation, which stays sound but loosens the result.
    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        with _lock:
            if flint.ctx.prec >= PRECISION:
                return function(*args, **kwargs)
            with flint.ctx.workprec(PRECISION):
                return function(*args, **kwargs)

    return wrapper


def ends(value: Number) -> tuple[float, float]:
    """Lower and upper end of an enclosure, or a number twice.

    An integer that float64 cannot hold is rounded outward.
    """
    if isinstance(value, Enclosure):
        return value.lower, value.upper
    if isinstance(value, int):
        return round_down(Fraction(value)), round_up(Fraction(value))
    if math.isnan(value):
        msg = "A number must not be nan. Got nan."
        raise ArgumentError(msg)
    return float(value), float(value)


def round_down(value: Any) -> float:
    """The largest float64 at or below a real number: a float, a Fraction or an arb ball."""
    return -round_up(-value)


def round_up(value: Any) -> float:
    """The smallest float64 at or above a real number: a float, a Fraction or an arb ball.

    For a ball, its upper end; inf for a ball that is not finite.
    """
    if isinstance(value, float):
        return value
    if not isinstance(value, Fraction):
        top = value.upper()
        if not top.is_finite():
            # -inf is never the upper end of a ball that stems from finite numbers.
            return math.inf
        nearest = float(top)
        if 2.0**-1000 < abs(nearest) < 2.0**1000:
            return _least_above(top, nearest)
        mantissa, exponent = (int(part) for part in top.man_exp())
        size = mantissa.bit_length() + exponent
        if mantissa and size > 1100:
            return math.inf if mantissa > 0 else -math.nextafter(math.inf, 0.0)
        if mantissa and size < -1100:
            return math.nextafter(0.0, math.inf) if mantissa > 0 else -0.0
        value = Fraction(mantissa) * Fraction(2) ** exponent
    try:
        nearest = value.numerator / value.denominator
    except OverflowError:
        return math.inf if value > 0 else -math.nextafter(math.inf, 0.0)
    if math.isinf(nearest):
        return nearest if nearest > 0 else -math.nextafter(math.inf, 0.0)
    return math.nextafter(nearest, math.inf) if Fraction(nearest) < value else nearest


def _least_above(number: arb, near: float) -> float:
    """The smallest float64 at or above an exact ball, from one near it; comparisons are exact."""
    while arb(near) < number:
        near = math.nextafter(near, math.inf)
    while arb(below := math.nextafter(near, -math.inf)) >= number:
        near = below
    return near


@in_precision
def to_arb(value: Number) -> arb:
    """A ball that contains the number; the whole line where an end is infinite."""
    if isinstance(value, int):
        return arb(value)
    lower, upper = ends(value)
    if math.isinf(lower) or math.isinf(upper):
        return arb(0, math.inf)
    return arb(lower) if lower == upper else arb(lower).union(arb(upper))


@in_precision
def from_arb(ball: arb) -> Enclosure:
    """The smallest float64 enclosure of a ball; [-inf, inf] where the ball is not finite."""
    return Enclosure(round_down(ball), round_up(ball))


@in_precision
def sqrt_enclosure(value: Number) -> Enclosure:
    """√value for value ≥ 0; exact for squares, within one ulp otherwise.

    Raises:
        ArgumentError: value is negative or nan.
    """
    # A whole number of any size stays exact; a float already is.
    lower, upper = (value, value) if isinstance(value, int) else ends(value)
    if lower < 0:
        msg = f"value must be 0 or more to have a square root. Got {value}."
        raise ArgumentError(msg)
    return Enclosure(
        math.inf if lower == math.inf else round_down(arb(lower).sqrt()),
        math.inf if upper == math.inf else round_up(arb(upper).sqrt()),
    )


def total(*terms: Number) -> Enclosure:
    """The sum of enclosures, exact but for one outward rounding."""
    lower, upper = Fraction(0), Fraction(0)
    low_inf = high_inf = False
    for term in terms:
        low, high = _exact_ends(term)
        low_inf, high_inf = low_inf or _infinite(low), high_inf or _infinite(high)
        lower += 0 if _infinite(low) else low
        upper += 0 if _infinite(high) else high
    return Enclosure(
        -math.inf if low_inf else round_down(lower), math.inf if high_inf else round_up(upper)
    )


def product(*factors: Number) -> Enclosure:
    """The product of enclosures, exact but for one outward rounding. 0·inf counts as 0.

    Factors are taken as independent: for a square of an enclosure around 0 this is loose.
    """
    lower: Any = Fraction(1)
    upper: Any = Fraction(1)
    for factor in factors:
        corners = [_times(a, b) for a in (lower, upper) for b in _exact_ends(factor)]
        lower, upper = min(corners), max(corners)
    return Enclosure(round_down(lower), round_up(upper))


def quotient(numerator: Number, denominator: Number) -> Enclosure:
    """The quotient of two enclosures, exact but for one outward rounding.

    Raises:
        ArgumentError: the denominator contains 0.
    """
    low, high = _exact_ends(denominator)
    if low <= 0 <= high:
        msg = f"denominator must not contain 0. Got {denominator}."
        raise ArgumentError(msg)
    inverses = [Fraction(0) if _infinite(x) else 1 / Fraction(x) for x in (low, high)]
    corners = [_times(a, b) for a in _exact_ends(numerator) for b in inverses]
    return Enclosure(round_down(min(corners)), round_up(max(corners)))


def _exact_ends(value: Number) -> tuple[Any, Any]:
    """Ends as fractions, infinities as floats."""
    if isinstance(value, int):
        return Fraction(value), Fraction(value)
    low, high = (x if math.isinf(x) else Fraction(x) for x in ends(value))
    return low, high


def _infinite(value: Any) -> bool:
    return isinstance(value, float)


def _times(a: Any, b: Any) -> Any:
    if a == 0 or b == 0:
        return Fraction(0)
    if _infinite(a) or _infinite(b):
        return math.inf if (a > 0) == (b > 0) else -math.inf
    return a * b
