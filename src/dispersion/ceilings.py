"""From a head's certified spread and spectrum to the ceiling at a length, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dispersion import rigor
from dispersion.distance_bias import JointBias
from dispersion.growth import Envelope

if TYPE_CHECKING:
    from dispersion.head import Head
    from dispersion.spectrum import Spectrum
    from dispersion.verdict import Target

_LONGEST = 2**60


@dataclass(frozen=True, eq=False)
class Bounds:
    """What is certified about one head, whatever the length.

    Attributes:
        head: for its window, sink, soft cap and whether it attends to itself.
        spread: upper bound on the spread of a row, soft cap included.
        level: upper bound on the modulus of any logit, soft cap included.
        spectrum: singular values for any-token retrieval, or None where nobody asked.
    """

    head: Head
    spread: float
    level: float
    spectrum: Spectrum | None = None

    def with_spread(self, spread: float) -> Bounds:
        """The same with another spread, such as that of the real offsets."""
        return replace(self, spread=spread)

    def spread_at(self, length: int) -> float:
        """Upper bound on the spread of a row at a length, with what positions do to it."""
        if isinstance(self.head.bias, JointBias):
            return self.head.bias.whole(self.spread, length)
        return self.apart_at(length)

    def apart_at(self, length: int) -> float:
        """The same where contents and positions may not both do their most."""
        spread = self.spread
        if self.head.growth is not None:
            spread = rigor.product(spread, self.head.growth.factor(length)).upper
        if self.head.bias is not None:
            spread = rigor.total(spread, self.head.bias.spread(length)).upper
        return spread

    def ceiling(self, target: Target, length: int | None = None) -> float:
        """The most that the target's question can be answered with at a length. **Upper.**

        One token, or `sink_tokens` together: T1, T2, T7. Any token: also T12 to T13″ for the keys
        that all queries see, the query token's own not counted.
        """
        length = target.length if length is None else length
        if self.head.growth is not None:
            return self._grown(self.head.growth.factor(length).upper).ceiling(target, length)
        seen = visible(self.head, length)
        tokens = min(max(1, target.sink_tokens), seen)
        upper = ceiling(self.head, self.level, self.spread, seen, tokens)
        if target.retrieval == "any" and self.spectrum is not None:
            keys = seen - 1 if self.head.self_attention else seen
            every = self.spectrum.any_token_ceiling(keys)
            if self.head.soft_cap is not None:
                # Under a soft cap the bound holds only for a token that is its row's largest.
                every = max(every, 0.5)
            upper = min(upper, every)
        return upper

    def _grown(self, factor: float) -> Bounds:
        """The same for queries multiplied by one factor, whatever their position."""
        return replace(
            self,
            head=replace(self.head, growth=None),
            spread=rigor.product(self.spread, factor).upper,
            level=rigor.product(self.level, factor).upper,
            spectrum=None if self.spectrum is None else self.spectrum.times(max(factor, 1.0)),
        )

    def largest_length(self, target: Target) -> float:
        """The largest length at which the question is not ruled out; inf where there is none.

        Where positions make logits grow so fast that ceilings do not fall, there is none either.
        """
        growth = self.head.growth
        if self.head.chunked:
            return math.inf  # the first queries of every chunk see few keys
        if growth is not None and (not growth.settles(self.spread) or self.head.window is not None):
            return math.inf
        if growth is not None:
            return self._bisected(target, math.inf)
        if self.head.bias is not None:
            settled = self.head.bias.settled()
            if settled is None:
                return math.inf
            head = replace(self.head, bias=settled)
            return replace(self, head=head)._bisected(target, math.inf)
        tokens = max(1, target.sink_tokens)
        reachable = rigor.reachable_length(self.spread, target.coefficient, items=tokens).upper
        if self.head.sink is not None or (target.retrieval == "any" and self.spectrum is not None):
            reachable = self._bisected(target, reachable)
        window = self.head.window
        if window is None or reachable < window:
            return reachable
        # All longer contexts show a query the same number of keys.
        held = self.ceiling(target, window) >= target.coefficient
        return math.inf if held else min(reachable, window - 1.0)

    def _bisected(self, target: Target, high: float) -> float:
        """The largest length up to `high` at which the ceiling meets the target.

        Ceilings fall with length once there are as many keys as sink tokens, and rise before.
        """
        bounds = replace(self, head=replace(self.head, window=None))
        if self.head.growth is not None:
            # Ceilings for any token are not known to fall; those for one token bound them.
            bounds = replace(bounds, spectrum=None, head=_enveloped(bounds.head))
        low, top = max(1, target.sink_tokens), int(min(high, _LONGEST))
        if bounds.ceiling(target, low) < target.coefficient:
            return 0.0
        if math.isinf(high) and bounds.ceiling(target, top) >= target.coefficient:
            return math.inf
        while low < top:
            middle = (low + top + 1) // 2
            if bounds.ceiling(target, middle) >= target.coefficient:
                low = middle
            else:
                top = middle - 1
        return float(low)


def _enveloped(head: Head) -> Head:
    """The head with a larger factor of positions, at which ceilings fall with the length."""
    assert head.growth is not None
    return replace(head, growth=Envelope(head.growth))


def visible(head: Head, length: int) -> int:
    """How many keys the last query sees in a context of `length` tokens."""
    return head.visible(length)


def ceiling(head: Head, level: float, spread: float, seen: int, tokens: int) -> float:
    """The most that `tokens` of `seen` keys hold together, sinks counted (T1, T2, T7). **Upper.**

    Args:
        head: for its learned sink.
        level: bound on the modulus of any logit.
        spread: bound on the spread of a row.
        seen: keys a query sees.
        tokens: how many of them share the mass, 1..seen.

    """
    if head.bias is not None:
        return head.bias.ceiling(spread, seen, tokens)
    upper = rigor.set_mass(tokens, seen, spread).upper
    if head.sink is None or not math.isfinite(level):
        return upper
    one = rigor.max_coefficient_with_sink(seen, spread, level, sink=head.sink).upper
    return min(upper, one * tokens * (1 + 2.0**-52)) if tokens > 1 else min(upper, one)
