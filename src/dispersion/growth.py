"""Queries that are multiplied by a factor of their position (length-dependent temperature).

Statement. Where the query at position t is multiplied by τ(t), non-decreasing, every row of a
context of n tokens has logits of at most τ(n−1) times the size they would have without, so its
spread is at most τ(n−1)·δ. Proof: a row's logits are linear in its query, and positions lie in
0..n−1.

Ceilings 1/(1+(n−1)e^(−δτ)) need not fall with n: with τ = 1 + c·log(1 + n/f) they do where δ·c ≤ 1,
since log(n−m) − δτ then has the slope 1/(n−m) − δc/(f+n) > 0; beyond, every target below 1 is
allowed again at some length. With τ = max(1, log n/log s) they do where δ ≤ log s, as the slope
past s is 1/(n−m) − δ/(n·log s).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from flint import arb

from dispersion.balls import from_arb, in_precision
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError

# Models compute the factor in float32.
_ROUNDING = 2.0**-20


class Growth(Protocol):
    """A factor of queries, non-decreasing in their position."""

    def factor(self, length: int) -> Enclosure:
        """Encloses the factor of the last query of a context of `length` tokens."""

    def settles(self, spread: float) -> bool:
        """Whether ceilings fall with the length, at `envelope` and this spread."""

    def envelope(self, length: int) -> float:
        """A factor of at least `factor(length)`, to which `settles` refers. **Upper.**"""


@dataclass(frozen=True)
class LogGrowth:
    """τ = 1 + rate·log(1 + ⌊(t + first)/period⌋) at position t (Llama 4, Ministral 3).

    Attributes:
        rate: c, not negative.
        period: f, positive; positions per step.
        first: what is added to positions, 0 or 1.
    """

    rate: float
    period: float
    first: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.rate < math.inf and 1 <= self.period < math.inf):
            msg = (
                "rate must be 0 or more and period 1 or more. "
                f"Got rate={self.rate}, period={self.period}."
            )
            raise ArgumentError(msg)

    @in_precision
    def factor(self, length: int) -> Enclosure:
        # Where the quotient is rounded across a whole number the step may come one position off.
        last = length - 1 + self.first
        steps = [
            math.floor(x / self.period) for x in (last * (1 - _ROUNDING), last * (1 + _ROUNDING))
        ]
        low, high = (from_arb(1 + arb(self.rate) * arb(1 + step).log()) for step in steps)
        return Enclosure(low.lower * (1 - _ROUNDING), high.upper * (1 + _ROUNDING))

    def settles(self, spread: float) -> bool:
        return spread * self.rate * (1 + 2 * _ROUNDING) < 1

    @in_precision
    def envelope(self, length: int) -> float:
        last = (length - 1 + self.first) * (1 + _ROUNDING)
        found = 1 + arb(self.rate) * (1 + arb(last) / arb(self.period)).log()
        return from_arb(found).upper * (1 + _ROUNDING)


@dataclass(frozen=True)
class LateGrowth:
    """τ = 1 + rate·log(max(1, (t + 1)/floor)) at position t (Inkling): 1 up to some length.

    log(n−m) − δτ has the slope 1/(n−m) − δ·rate/n at most, so ceilings fall where δ·rate ≤ 1.

    Attributes:
        rate: not negative.
        floor: positive.
    """

    rate: float
    floor: float

    def __post_init__(self) -> None:
        if not (0 <= self.rate < math.inf and 0 < self.floor < math.inf):
            msg = (
                "rate must be 0 or more and floor positive. "
                f"Got rate={self.rate}, floor={self.floor}."
            )
            raise ArgumentError(msg)

    @in_precision
    def factor(self, length: int) -> Enclosure:
        if length <= self.floor:
            return Enclosure.exact(1.0)
        found = from_arb(1 + arb(self.rate) * (arb(length) / arb(self.floor)).log())
        return Enclosure(found.lower * (1 - _ROUNDING), found.upper * (1 + _ROUNDING))

    def settles(self, spread: float) -> bool:
        return spread * self.rate * (1 + 2 * _ROUNDING) < 1

    def envelope(self, length: int) -> float:
        return self.factor(length).upper


@dataclass(frozen=True)
class PowerGrowth:
    """τ = (1 + (t + 1)/period)^power at position t (Beam): n^power outgrows every logarithm.

    Attributes:
        power: not negative.
        period: positive.
    """

    power: float
    period: float

    def __post_init__(self) -> None:
        if not (0 <= self.power < math.inf and 1 <= self.period < math.inf):
            msg = (
                "power must be 0 or more and period 1 or more. "
                f"Got power={self.power}, period={self.period}."
            )
            raise ArgumentError(msg)

    @in_precision
    def factor(self, length: int) -> Enclosure:
        found = from_arb((1 + arb(length) / arb(self.period)) ** arb(self.power))
        return Enclosure(found.lower * (1 - _ROUNDING), found.upper * (1 + _ROUNDING))

    def settles(self, spread: float) -> bool:
        """Only without growth or spread; else 1/(1+(n−1)e^(−δτ)) rises again at some length."""
        return self.power == 0 or spread == 0

    def envelope(self, length: int) -> float:
        return self.factor(length).upper


@dataclass(frozen=True)
class LogBaseGrowth:
    """τ = max(1, log(t + 1)/log(trained)) at position t (Qwen 1, its `logn` attention).

    Attributes:
        trained: s, the length up to which nothing grows; 2 or more.
    """

    trained: int

    def __post_init__(self) -> None:
        if self.trained < 2:
            msg = f"trained must be 2 or more. Got {self.trained}."
            raise ArgumentError(msg)

    @in_precision
    def factor(self, length: int) -> Enclosure:
        if length <= self.trained:
            return Enclosure.exact(1.0)
        found = from_arb(arb(length).log() / arb(self.trained).log())
        return Enclosure(max(1.0, found.lower * (1 - _ROUNDING)), found.upper * (1 + _ROUNDING))

    @in_precision
    def settles(self, spread: float) -> bool:
        return bool(arb(spread) * arb(1 + 2 * _ROUNDING) < arb(self.trained).log())

    def envelope(self, length: int) -> float:
        return max(1.0 + _ROUNDING, self.factor(length).upper)


@dataclass(frozen=True)
class LearnedGrowth:
    """|slope·log(t + 1) + start| at position t, numbers that each head learns (Mistral Large 4).

    A negative factor turns a row upside down, which leaves its spread. The modulus is convex in
    log(t + 1), so that of positions up to n − 1 the first or the last has the largest: `factor`
    reaches from that of the last query up to the largest, which never falls. It grows by at most
    |slope|/n a token, so that ceilings fall where δ·|slope| ≤ 1, as above.

    Attributes:
        slope, start: any numbers.
    """

    slope: float
    start: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.slope) and math.isfinite(self.start)):
            msg = f"slope and start must be finite. Got slope={self.slope}, start={self.start}."
            raise ArgumentError(msg)

    @in_precision
    def factor(self, length: int) -> Enclosure:
        moved = arb(self.slope) * arb(length).log()
        # Rounding in models is relative to the two terms, not to a sum in which they cancel.
        error = (abs(moved) + abs(arb(self.start))) * _ROUNDING
        last = from_arb(abs(moved + arb(self.start)))
        slack = from_arb(error).upper
        upper = max(last.upper, abs(self.start)) + slack
        return Enclosure(max(0.0, last.lower - slack), math.nextafter(upper, math.inf))

    def settles(self, spread: float) -> bool:
        return spread * abs(self.slope) * (1 + 4 * _ROUNDING) < 1

    def envelope(self, length: int) -> float:
        return self.factor(length).upper


@dataclass(frozen=True)
class Envelope:
    """The larger factor of a growth, at which ceilings fall with the length where they settle."""

    growth: Growth

    def factor(self, length: int) -> Enclosure:
        return Enclosure.exact(self.growth.envelope(length))

    def settles(self, spread: float) -> bool:
        return self.growth.settles(spread)

    def envelope(self, length: int) -> float:
        return self.growth.envelope(length)
