"""One attention row from a few numbers: whatever is missing among length, spread and coefficient.

Of length, spread (or norm) and coefficient any two say something about the third; all three say
whether the coefficient can be reached, and at which temperature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dispersion import rigor
from dispersion.balls import quotient
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError
from dispersion.lengths import LONGEST
from dispersion.solving import turning_point, whole_turning_point

Side = Literal["upper", "lower"]
RowVerdict = Literal["ruled_out", "reached", "not_ruled_out"]


@dataclass(frozen=True)
class Row:
    """What is known about a row; None where it is not.

    Attributes:
        length: unmasked items.
        spread: largest logit minus smallest, before the cap and the temperature.
        norm: 2-norm of the logits minus their mean, after a cap, before the temperature (T3′).
        coefficient: the share that `items` items are to hold together.
        temperature: divides the logits, after the cap.
        items: how many.
        soft_cap: bends the logits (T8); alone it limits the spread to twice the cap.

    Raises:
        ArgumentError: a number is out of range, or numbers do not go together or do not suffice.
    """

    length: int | None = None
    spread: float | None = None
    norm: float | None = None
    coefficient: float | None = None
    temperature: float = 1.0
    items: int = 1
    soft_cap: float | None = None

    def __post_init__(self) -> None:
        if self.coefficient is not None and not 0 < self.coefficient < 1:
            msg = f"target must lie strictly between 0 and 1. Got {self.coefficient}."
            raise ArgumentError(msg)
        for name, value in (("spread", self.spread), ("norm", self.norm)):
            if value is not None and not value >= 0:
                msg = f"{name} must be 0 or more. Got {value}."
                raise ArgumentError(msg)
        for name, value in (("temperature", self.temperature), ("soft-cap", self.soft_cap)):
            if value is not None and not 0 < value < math.inf:
                msg = f"{name} must be positive and finite. Got {value}."
                raise ArgumentError(msg)
        if self.length is not None and self.items > self.length:
            msg = f"items must not exceed length. Got items={self.items}, length={self.length}."
            raise ArgumentError(msg)
        if self.norm is not None and self.items > 1:
            msg = f"norm bounds the share of one item (T3′), not of {self.items}; give spread."
            raise ArgumentError(msg)
        known = [
            self.length is not None,
            self.limited,
            self.coefficient is not None,
        ]
        if sum(known) < 2:
            msg = (
                "give at least two of length, spread (or norm, or soft-cap) and target; "
                "the third is solved for."
            )
            raise ArgumentError(msg)

    @property
    def limited(self) -> bool:
        """Whether anything limits the logits."""
        return not (self.spread is None and self.norm is None and self.soft_cap is None)


@dataclass(frozen=True)
class Statement:
    """A certified number.

    Attributes:
        name: what it bounds; ``spread`` after the cap, ``ceiling`` and ``floor`` of the share,
            ``published_ceiling``, ``entropy`` in nats, ``required_spread``,
            ``required_spread_before_cap``, ``reachable_length``, ``temperature``.
        side: "upper": the true number is at most this; "lower": at least.
        value: rounded outward.
        theorem: its numbers.
    """

    name: str
    side: Side
    value: float
    theorem: str


@dataclass(frozen=True)
class RowBound:
    """Statements about a row, and whether the coefficient is reached where all was given."""

    row: Row
    statements: tuple[Statement, ...]
    verdict: RowVerdict | None


def bound_row(row: Row) -> RowBound:
    """Solve for what is missing, or say whether the coefficient can be reached.

    "reached" means that some row with these numbers attains it; "not_ruled_out" that neither that
    nor the contrary is proved.
    """
    found: list[Statement] = []
    spread = _spread(row)
    if row.soft_cap is not None and spread is not None:
        found.append(Statement("spread", "upper", spread.upper, "T8"))
    if row.length is not None and row.limited:
        found += _shares(row, row.length, spread)
    if row.length is not None and row.coefficient is not None:
        found += _required(row, row.length, row.coefficient)
    if row.coefficient is not None and row.limited:
        found.append(_reachable(row, row.coefficient, spread))
    verdict = None
    if row.length is not None and row.coefficient is not None and row.limited:
        verdict = _verdict(row, row.length, row.coefficient)
        found += _temperature(row, row.length, row.coefficient)
    return RowBound(row, tuple(found), verdict)


def _spread(row: Row) -> Enclosure | None:
    """The spread after the cap, before the temperature."""
    if row.soft_cap is not None:
        return rigor.capped_spread(math.inf if row.spread is None else row.spread, row.soft_cap)
    return None if row.spread is None else Enclosure.exact(row.spread)


def _ceiling(row: Row, length: int, temperature: float) -> tuple[Enclosure, str]:
    """The least of T1 (T2) and T3′, and which."""
    found = []
    spread = _spread(row)
    if spread is not None:
        ceiling = rigor.set_mass(row.items, length, spread, temperature=temperature)
        found.append((ceiling, "T1" if row.items == 1 else "T2"))
    if row.norm is not None:
        ceiling = rigor.norm_max_coefficient(length, quotient(row.norm, temperature))
        found.append((ceiling, "T3′"))
    return min(found, key=lambda pair: pair[0].upper)


def _shares(row: Row, n: int, spread: Enclosure | None) -> list[Statement]:
    ceiling, theorem = _ceiling(row, n, row.temperature)
    found = [Statement("ceiling", "upper", ceiling.upper, theorem)]
    floors = []
    if spread is not None:
        if row.items == 1:
            loose = rigor.loose_max_coefficient(n, spread, temperature=row.temperature)
            found.append(Statement("published_ceiling", "upper", loose.upper, "T1"))
        least = rigor.min_set_mass(row.items, n, spread, temperature=row.temperature).lower
        found.append(Statement("floor", "lower", least, "T1" if row.items == 1 else "T2"))
        floors.append((rigor.min_entropy(n, spread, temperature=row.temperature).lower, "T3"))
    if row.norm is not None:
        floors.append((rigor.norm_min_entropy(n, quotient(row.norm, row.temperature)).lower, "T3′"))
    return [*found, Statement("entropy", "lower", *max(floors))]


def _required(row: Row, n: int, p: float) -> list[Statement]:
    needed = rigor.required_spread(n, p, items=row.items, temperature=row.temperature).lower
    found = [Statement("required_spread", "lower", needed, "T4")]
    cap = row.soft_cap
    if cap is not None:
        turn = turning_point(lambda spread: rigor.capped_spread(spread, cap).upper >= needed)
        before = 0.0 if turn.no is None else math.inf if turn.yes is None else turn.no
        found.append(Statement("required_spread_before_cap", "lower", before, "T4, T8"))
    return found


def _reachable(row: Row, p: float, spread: Enclosure | None) -> Statement:
    lengths = []
    if spread is not None:
        found = rigor.reachable_length(spread, p, items=row.items, temperature=row.temperature)
        lengths.append((found.upper, "T4"))
    if row.norm is not None:
        norm = quotient(row.norm, row.temperature)
        turn = whole_turning_point(
            lambda n: rigor.norm_max_coefficient(n, norm).upper < p, 1, LONGEST
        )
        lengths.append((math.inf if turn.yes is None else turn.yes - 1, "T3′"))
    return Statement("reachable_length", "upper", *min(lengths))


def _verdict(row: Row, n: int, p: float) -> RowVerdict:
    ceiling, _ = _ceiling(row, n, row.temperature)
    if ceiling.upper < p:
        return "ruled_out"
    # Each theorem alone is attained; a spread and a norm together may not be, and a cap alone
    # leaves a spread that no row quite has.
    alone = row.norm is None or (row.spread is None and row.soft_cap is None)
    open_end = row.soft_cap is not None and row.spread is None and n > row.items
    enough = ceiling.lower > p if open_end else ceiling.lower >= p
    return "reached" if alone and enough else "not_ruled_out"


def _temperature(row: Row, n: int, p: float) -> list[Statement]:
    """The highest temperature that is not ruled out, from above."""
    turn = turning_point(lambda x: _ceiling(row, n, 1 / x)[0].upper >= p)
    highest = math.inf if turn.no is None else 0.0 if turn.yes is None else 1 / turn.no
    theorem = "T4" if row.norm is None else "T3′" if _spread(row) is None else "T3′, T4"
    return [Statement("temperature", "upper", highest, theorem)]
