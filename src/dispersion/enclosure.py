"""Numbers that say what they are: `Enclosure` (proved) and `Estimate` (not)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dispersion.errors import ArgumentError


@dataclass(frozen=True)
class Enclosure:
    """An interval that contains a real number: both ends are rigorous, rounded outward.

    `upper` may be `inf` and `lower` may be `-inf` where no bound is known on that side.
    Enclosures never mix with estimates: the two types share no operation.
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if math.isnan(self.lower) or math.isnan(self.upper) or self.lower > self.upper:
            msg = f"lower must not exceed upper. Got lower={self.lower}, upper={self.upper}."
            raise ArgumentError(msg)

    @classmethod
    def exact(cls, value: float) -> Enclosure:
        """The enclosure of a number that a float holds exactly."""
        return cls(value, value)

    def __contains__(self, value: float) -> bool:
        return self.lower <= value <= self.upper


@dataclass(frozen=True)
class Estimate:
    """A number without a proof, printed with ``≈``. Never part of a verdict."""

    value: float

    def __str__(self) -> str:
        return f"≈{self.value:.6g}"
