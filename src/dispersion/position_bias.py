"""Biases that positions add to logits: ALiBi's, which grows with the lag, and bounded tables.

Content logits c_j of a row spread by at most δ; the logit of the key at lag j is c_j + b(j).
Without a bias n keys give 1/(1+(n−1)e^(−δ)) (T1).

Statement (linear bias b(j) = −s·j, causal, s ≥ 0). In a row of n keys m of them hold together at
most A/(A + e^(−δ) B) with A = Σ_{j<m} e^(−sj) and B = Σ_{m≤j<n} e^(−sj). The spread of the row is
at most δ + s·(n−1).

Proof. With S the m lags and S′ the others, mass/(1 − mass) = Σ_S e^(c_j−sj)/Σ_S′ e^(c_j−sj), at
most e^δ Σ_S e^(−sj)/Σ_S′ e^(−sj). Moving S to the smallest lags makes the upper sum largest and the
lower one smallest at once. Both are geometric: B/A = x^m (1−x^(n−m))/(1−x^m), x = e^(−s), which
falls with s, so that an upper bound on s certifies. As n grows B stays below e^(−sm)/(1−e^(−s)):
the nearest keys keep a share at every length, and large slopes rule out nothing.

A table (T5) has bounded entries: its spread is added to δ, and T2 applies.

With queries at any positions such biases cancel from T12 and T13: −s·(t−j) is a constant of the row
plus a bias of the key, and key biases cancel between (i, j) and (j, i). T13″ (the median key) takes
keys without biases of their own and does not hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from flint import arb

from dispersion import rigor
from dispersion.balls import in_precision, product, round_up, to_arb, total
from dispersion.errors import ArgumentError

if TYPE_CHECKING:
    from dispersion.enclosure import Enclosure


class Bias(Protocol):
    """What bounds need of a bias that positions add to logits."""

    @property
    def words(self) -> str:
        """A name for the report."""

    @property
    def one_sided(self) -> bool:
        """Whether it is defined for keys up to the query alone."""

    def settled(self) -> Bias | None:
        """A bias with larger ceilings that fall with the length; None where there is none."""

    def spread(self, length: int) -> float:
        """Upper bound on the difference of two biases in a row of a context of `length` tokens."""

    def around_own(self, length: int) -> AroundOwn | None:
        """How biases lie around that of the query's own key, or None where that is not told."""

    def ceiling(self, spread: float, seen: int, tokens: int) -> float:
        """The most that `tokens` of `seen` keys hold together at a content spread. **Upper.**"""


@dataclass(frozen=True)
class AroundOwn:
    """Upper bounds on differences of biases in a row, the query's own key told apart.

    Attributes:
        others: of two keys that are not the query's own.
        above: of the own key's less another one's.
        below: of another key's less the own one's.
    """

    others: float
    above: float
    below: float


@dataclass(frozen=True)
class LinearBias:
    """ALiBi: the key at lag j gets −slope·j (Press et al., arXiv 2108.12409).

    Attributes:
        slope: encloses the slope in logits per token, the logit scale included where it is applied
            to the bias; not negative.
        rounding: relative error of each bias in the model's own code, besides that of the slope:
            0 where it is computed in the precision of the logits. A bias of position p is then off
            by up to rounding·slope·p, and the difference of two by twice that.
    """

    slope: Enclosure
    rounding: float = 0.0

    def __post_init__(self) -> None:
        if self.slope.lower < 0 or not math.isfinite(self.slope.upper):
            msg = f"slope must be finite and not negative. Got {self.slope}."
            raise ArgumentError(msg)

    @property
    def words(self) -> str:
        return "linear position bias"

    @property
    def one_sided(self) -> bool:
        return True

    def settled(self) -> LinearBias | None:
        return self if self.rounding == 0 else None

    def slack(self, seen: int) -> float:
        """How far rounding moves the difference of two biases among `seen` keys. **Upper.**"""
        return product(2.0, self.rounding, self.slope.upper, seen - 1).upper

    def spread(self, length: int) -> float:
        return total(product(self.slope.upper, length - 1), self.slack(length)).upper

    def around_own(self, length: int) -> AroundOwn:
        slack = self.slack(length)
        return AroundOwn(
            others=total(product(self.slope.upper, max(length - 2, 0)), slack).upper,
            above=total(product(self.slope.upper, length - 1), slack).upper,
            below=total(-self.slope.lower, slack).upper,
        )

    def ceiling(self, spread: float, seen: int, tokens: int) -> float:
        if tokens >= seen:
            return 1.0
        whole = total(spread, self.slack(seen)).upper
        return min(1.0, max(0.0, _geometric_ceiling(self.slope.upper, whole, seen, tokens)))


@dataclass(frozen=True)
class TableBias:
    """A bounded bias by distance (T5): entries by bucket, one column for each head.

    Attributes:
        values: the head's entry of every bucket.
        exact: buckets of one distance each, in one direction; the further ones grow. 0 counts
            all buckets at every length.
        furthest: distance from which on all keys share the last bucket.
        directions: 1 where all keys lie before the query, 2 where the second half of the buckets
            is for keys behind it.
    """

    values: tuple[float, ...]
    exact: int
    furthest: int
    directions: int = 1

    @property
    def words(self) -> str:
        return "relative position bias"

    @property
    def one_sided(self) -> bool:
        return self.directions == 1

    def settled(self) -> TableBias:
        return replace(self, exact=0)

    @property
    def buckets(self) -> int:
        """Buckets of one direction."""
        return len(self.values) // self.directions

    def reached(self, length: int) -> int:
        """Upper bound on the number of buckets of one direction in a context of `length` tokens."""
        distance = length - 1
        if self.exact == 0:
            return self.buckets
        if distance < self.exact:
            return distance + 1
        rest, unit = self.buckets - self.exact, math.log(self.furthest / self.exact)
        further = math.log(distance / self.exact) / unit * rest
        # Models round quotient and logarithm to float32.
        further += 2.0**-18 * (1 + further + rest / unit)
        return min(self.buckets, self.exact + int(further) + 1)

    def entries(self, length: int, first: int = 0) -> list[float]:
        """Entries that keys of a context can get, of buckets from `first` on in each direction.

        And maybe more.
        """
        count, size = self.reached(length), self.buckets
        return [
            self.values[d * size + i] for d in range(self.directions) for i in range(first, count)
        ]

    def spread(self, length: int) -> float:
        used = self.entries(length)
        return total(max(used), -min(used)).upper

    def around_own(self, length: int) -> AroundOwn | None:
        # Bucket 0 is the query's own key's alone where distances below `exact` have their own.
        used = self.entries(length, first=1)
        if self.exact == 0 or not used:
            return None
        most, least, own = max(used), min(used), self.values[0]
        return AroundOwn(
            others=total(most, -least).upper,
            above=total(own, -least).upper,
            below=total(most, -own).upper,
        )

    def ceiling(self, spread: float, seen: int, tokens: int) -> float:
        whole = total(spread, self.spread(seen)).upper
        return rigor.set_mass(tokens, seen, whole).upper


@dataclass(frozen=True)
class BoundedBias:
    """A bias of which nothing is told but how far apart two entries of one row can lie.

    Attributes:
        width: upper bound on that, in logits.
    """

    width: float

    @property
    def words(self) -> str:
        return "bounded position bias"

    @property
    def one_sided(self) -> bool:
        return False

    def settled(self) -> BoundedBias:
        return self

    def spread(self, length: int) -> float:  # noqa: ARG002
        return self.width

    def around_own(self, length: int) -> None:  # noqa: ARG002
        return

    def ceiling(self, spread: float, seen: int, tokens: int) -> float:
        return rigor.set_mass(tokens, seen, total(spread, self.width).upper).upper


@in_precision
def _geometric_ceiling(slope: float, spread: float, seen: int, tokens: int) -> float:
    """1/(1 + e^(−spread)·x^m (1−x^(n−m))/(1−x^m)), x = e^(−slope), rounded up."""
    if math.isinf(spread):
        return 1.0
    if slope == 0:
        ratio = arb(seen - tokens) / tokens
    else:
        s = arb(slope)
        ratio = (-s * tokens).exp() * (-s * (seen - tokens)).expm1() / (-s * tokens).expm1()
    return round_up(1 / (1 + (-arb(spread)).exp() * ratio))


@in_precision
def coefficient_of_nearest(
    bias: LinearBias, top: float, bottom: float, own: float | None, others: int, tokens: int
) -> float:
    """What keys at lags 1..tokens hold together, the rest at lags up to `others`. **Lower.**

    Args:
        bias: the linear bias.
        top, bottom: content logits: a lower bound for the nearest keys, an upper one for the rest.
        own: upper bound on the logit of the query's own key, at lag 0, or None.
        others: keys besides the query's own.
        tokens: how many of them are counted, 1..others.

    """
    s = to_arb(bias.slope)
    # Σ_{1≤j≤m} x^j and Σ_{m<j≤others} x^j, both over x.
    near, far = arb(0), arb(0)
    if bias.slope.upper == 0:
        near, far = arb(tokens), arb(others - tokens)
    elif bias.slope.lower > 0:
        unit = (-s).expm1()
        near = (-s * tokens).expm1() / unit
        far = (-s * tokens).exp() * (-s * (others - tokens)).expm1() / unit
    else:
        return 0.0
    rest = (arb(bottom) - arb(top)).exp() * far
    if own is not None:
        rest += (arb(own) - arb(top) + s).exp()
    share = near / (near + rest * arb(bias.slack(others + 1)).exp())
    return max(0.0, -round_up(-share))
