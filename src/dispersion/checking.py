"""One head against its targets: certified ceilings, witnesses and verdicts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dispersion import rigor, witness
from dispersion.ceilings import Bounds, visible
from dispersion.distance_bias import JointBias
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError
from dispersion.offsets import Outcome, exact_spreads
from dispersion.own_rows import own_spreads
from dispersion.picked import PickedHead
from dispersion.spectrum import spectrum
from dispersion.spread import SpreadBound, product_bound, spread_bound
from dispersion.verdict import Capacity, HeadResult, Result, Target, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dispersion.head import Head

EXPLICIT_LAGS = 2048
CONTEXT_KEYS = 64
"""Keys of the largest context that is built to witness any-token retrieval."""
UNKNOWN = Enclosure(0.0, 1.0)
_UP = 1 + 2.0**-50
_LARGEST = 2.0**500


@dataclass(frozen=True)
class Place:
    """Where a head sits: the attention's tensor-name prefix and its indices."""

    module: str = ""
    layer: int = 0
    head: int = 0
    kv_head: int = 0


def check(head: Head, target: Target, *, offsets: str = "free") -> Result:
    """Can this head put `target.coefficient` on one of `target.length` tokens?

    Args:
        head: the head in normal form.
        target: the question.
        offsets: "free" bounds over any rotation angles; "exact" over the real offsets, which costs
            time in proportion to the length.

    Returns:
        The ceiling, enclosed, and a verdict: RULED_OUT is a proof that no input reaches the
        target, WITNESSED that one does.

    Raises:
        ArgumentError: offsets is neither "free" nor "exact".

    """
    return check_head(head, [target], offsets=offsets).results[0]


def check_head(
    head: Head,
    targets: Sequence[Target],
    *,
    place: Place | None = None,
    offsets: str = "free",
    budget: float | None = None,
) -> HeadResult:
    """All targets for one head, in one pass over its weights.

    Args:
        head: the head in normal form.
        targets: the questions.
        place: the names that the result carries.
        offsets: "free" or "exact".
        budget: seconds that "exact" may take for this head; past it the free bound is reported
            with a note.

    Raises:
        ArgumentError: offsets is neither "free" nor "exact".

    """
    if offsets not in ("free", "exact"):
        msg = f"offsets must be 'free' or 'exact'. Got {offsets!r}."
        raise ArgumentError(msg)
    place = place or Place()
    if not head.bounded:
        return _unbounded(head, targets, place)
    paper = product_bound(head)
    longest = max((t.length for t in targets), default=1)
    placed = head.rotary is not None and head.rotary.placed
    found = _Witnesses(replace(head, reach=None) if placed else head.witnessed, longest)
    free = _no_looser(spread_bound(head), paper)
    outcomes: dict[int, Outcome] = {}
    if offsets == "exact" and free.theorem == "T10" and not placed and _in_range(head):
        outcomes = exact_spreads(head, [t.length for t in targets], free.spread, budget=budget)
    for length, outcome in outcomes.items():
        if head.growth is None:
            found.add(length, outcome.witness)
    lengths = [t.length for t in targets if head.bias is None or t.length == longest]
    own = own_spreads(head, free.spread, lengths)
    if head.bias is None:
        outcomes = {n: Outcome(x, None, exact=False) for n, x in own.items()} | outcomes
    spread = outcomes[longest].spread if longest in outcomes else free.spread
    # Queries that pick their keys may have none in common: for any token T12 says nothing then.
    # Nor do products with positions cancel from it, as other biases do, nor what queries make.
    apart = isinstance(head, PickedHead) or isinstance(head.bias, JointBias) or not head.common
    common = not apart and any(t.retrieval == "any" for t in targets)
    values = spectrum(head, free.scales) if common else None
    bounds = Bounds(head, free.spread, free.level, values)
    # What positions do to the spread is that of the longest context.
    whole = bounds.with_spread(spread).spread_at(longest)
    whole = min(whole, own.get(longest, math.inf))

    def answer(target: Target) -> Result:
        here = outcomes.get(target.length)
        at = bounds if here is None else bounds.with_spread(here.spread)
        upper = at.ceiling(target)
        lower = _below(found.coefficient(target, upper), upper, "coefficient")
        return Result(target, Enclosure(lower, upper), _verdict(lower, upper, target.coefficient))

    return HeadResult(
        module=place.module,
        layer=place.layer,
        head=place.head,
        kv_head=place.kv_head,
        spread=Enclosure(_below(found.spread(longest), whole, "spread"), whole),
        paper_spread=bounds.with_spread(paper).apart_at(longest),
        window=head.most_seen,
        cap=_cap(head),
        largest_length=_largest_length(bounds, targets, spread, longest),
        results=tuple(answer(target) for target in targets),
        spread_kind="exact" if longest in outcomes and outcomes[longest].exact else "free",
        notes=(
            *dict.fromkeys(note for o in outcomes.values() for note in o.notes),
            *_position_notes(head, longest),
        ),
        capacity=None
        if values is None
        else Capacity(values.log_capacity.upper, values.log_capacity_estimate),
    )


def _in_range(head: Head) -> bool:
    """Whether squares of logits are float64, as bounds over real offsets need."""
    assert head.query is not None
    assert head.key is not None
    return head.query.norm_upper * head.key.norm_upper < _LARGEST


def _below(lower: float, upper: float, what: str) -> float:
    """The lower end, held against the upper one: a witness above a certificate is a bug."""
    if lower > upper:
        msg = (
            f"a witness reaches a {what} of {lower!r} above the certified {upper!r}: please report"
        )
        raise RuntimeError(msg)
    return lower


def _no_looser(bound: SpreadBound, product: float) -> SpreadBound:
    """The bound, or the product bound where rounding in nearly singular heads made it looser."""
    return replace(
        bound, spread=min(bound.spread, product), level=min(bound.level, product / 2 * _UP)
    )


class _Witnesses:
    """Witnesses for one head, built when first needed."""

    def __init__(self, head: Head, longest: int) -> None:
        self._head = head
        self._shared: witness.Witness | None = None
        self._own: dict[int, list[witness.Witness]] = {}
        self._known: dict[tuple[int, int], float] = {}
        self._longest = longest
        self._started = False

    def add(self, length: int, found: witness.Witness | None) -> None:
        if found is not None:
            self._own.setdefault(length, []).append(found)
            self._known.clear()

    def _at(self, length: int) -> list[witness.Witness]:
        rotary = self._head.rotary
        if self._head.growth is not None or (rotary is not None and rotary.length_dependent):
            if length not in self._own:
                self.add(length, witness.build(self._head.at(length), length))
            return self._own.get(length, [])
        if not self._started:
            self._shared = witness.build(self._head, self._longest)
            self._started = True
        shared = [] if self._shared is None else [self._shared]
        return [*self._own.get(length, []), *shared]

    def spread(self, length: int) -> float:
        return max((w.spread(length) for w in self._at(length)), default=0.0)

    def _reached(self, target: Target) -> float:
        tokens = min(max(1, target.sink_tokens), visible(self._head, target.length))
        return max(
            (w.coefficient(target.length, tokens) for w in self._at(target.length)), default=0.0
        )

    def coefficient(self, target: Target, ceiling: float) -> float:
        """The best coefficient found; looks closer where it could decide the verdict."""
        keys = visible(self._head, target.length) - (1 if self._head.self_attention else 0)
        if target.retrieval == "any" and keys > 1:
            return self._any_token(target, keys, ceiling)
        tokens = min(max(1, target.sink_tokens), visible(self._head, target.length))
        candidates = self._at(target.length)
        best = self._reached(target)
        if not candidates or best >= target.coefficient or ceiling < target.coefficient:
            return best
        first = candidates[0]
        seen = first.visible(target.length)
        hopeful = rigor.set_mass(min(tokens, seen), seen, self.spread(target.length)).upper
        if hopeful < target.coefficient or first.alike or seen < 3:
            return best
        lags = np.arange(1, min(seen, EXPLICIT_LAGS + 1), dtype=np.int64)
        closer = witness.evaluate(first.head, target.length, first.direction, lags)
        return best if closer is None else max(best, closer.coefficient(target.length, tokens))

    def _any_token(self, target: Target, keys: int, ceiling: float) -> float:
        """What every token of an explicit context gets; only short ones are built."""
        if keys > CONTEXT_KEYS or ceiling < target.coefficient or self._head.bias is not None:
            return 0.0
        from dispersion.head_contexts import head_context

        context = head_context(self._head.at(target.length), keys)
        return 0.0 if context is None else context.coefficient


def _verdict(lower: float, upper: float, coefficient: float) -> Verdict:
    if upper < coefficient:
        return Verdict.RULED_OUT
    return Verdict.WITNESSED if lower >= coefficient else Verdict.UNRESOLVED


def _largest_length(
    bounds: Bounds, targets: Sequence[Target], spread: float, longest: int
) -> float:
    """The largest length at which the first target's question is not ruled out.

    A spread over the real offsets of `longest` tokens says nothing of longer contexts.
    """
    if not targets:
        return math.inf
    anywhere = bounds.largest_length(targets[0])
    if spread == bounds.spread or anywhere > longest:
        return anywhere
    return min(anywhere, bounds.with_spread(spread).largest_length(targets[0]))


def _cap(head: Head) -> str:
    cap = head.cap if head.bias is None else f"{head.cap}, {head.bias.words}"
    return cap if head.soft_cap is None else f"{cap}, soft cap {head.soft_cap:g}"


def _position_notes(head: Head, longest: int) -> list[str]:
    notes = []
    if head.most_seen is None and head.window is not None:
        count = head.window
        notes.append(f"a query sees {count} keys or more: ceilings are those of {count} keys")
    if head.growth is not None or head.bias is not None:
        notes.append(
            f"positions act on the logits: the spread is that of contexts of {longest} tokens"
        )
    return notes


def _unbounded(head: Head, targets: Sequence[Target], place: Place) -> HeadResult:
    spread = Enclosure(0.0, math.inf)
    upper = math.inf
    if head.soft_cap is not None:
        # A soft cap bounds the logits whatever the inputs (T8).
        spread = Enclosure(0.0, rigor.capped_spread(math.inf, head.soft_cap).upper)
        upper = spread.upper
    bounds = Bounds(head, upper, upper / 2)
    results = []
    for target in targets:
        if math.isinf(upper):
            results.append(Result(target, UNKNOWN, Verdict.UNBOUNDED))
            continue
        top = bounds.ceiling(target)
        results.append(Result(target, Enclosure(0.0, top), _verdict(0.0, top, target.coefficient)))
    return HeadResult(
        module=place.module,
        layer=place.layer,
        head=place.head,
        kv_head=place.kv_head,
        spread=spread,
        paper_spread=upper,
        window=head.most_seen,
        cap=_cap(head),
        largest_length=_largest_length(bounds, targets, upper, 1),
        results=tuple(results),
        notes=()
        if math.isfinite(upper)
        else ("no norm caps the inputs of this head, so its logits have no bound",),
    )
