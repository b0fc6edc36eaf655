"""What a head that does not exist yet can do, and what it would take: `plan_head`.

The head's queries and keys fill balls, so the singular values of its joint matrix are at most one
number κ, its largest logit, in as many directions as queries use. One token is bounded by T1 with
spread 2κ (T7 with a sink, T8 with a cap), any token by T12, T13 and T13′ over the n − 1 keys of a
causal row: the query's own key is not one of them.

Rotary positions are covered for queries at one position: turning pairs of coordinates leaves κ as
it is where `PlannedHead.gain` is taken over pairs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from flint import arb

from dispersion import rigor, rigor_capacity
from dispersion.balls import in_precision, product, quotient, round_up, sqrt_enclosure
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError
from dispersion.lengths import DEFAULT_LENGTHS, LONGEST
from dispersion.planned import (
    WIDEST,
    HeadPlan,
    LengthPlan,
    Need,
    NormComparison,
    PlannedHead,
    Quantity,
    Retrieval,
)
from dispersion.schedules import Schedule
from dispersion.solving import Turn, turning_point, whole_turning_point
from dispersion.verdict import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["PlannedHead", "largest_logit", "plan_head"]

_UNLIMITED = Enclosure.exact(math.inf)


def plan_head(
    head: PlannedHead,
    targets: Sequence[Target] | None = None,
    *,
    retrieval: Retrieval | None = None,
) -> HeadPlan:
    """Bound a planned head at each target, and solve for what the longest one takes.

    Args:
        head: the head.
        targets: lengths and coefficients; by default ½ at 4K to 1M tokens.
        retrieval: solve only for "one" token or for "any" token; both by default.

    Raises:
        ArgumentError: no target, a target with sink tokens, or an unknown retrieval.
    """
    targets = [Target(n) for n in DEFAULT_LENGTHS] if targets is None else list(targets)
    if not targets or any(target.sink_tokens for target in targets):
        msg = "targets must be one or more, about one token each (sink_tokens=0)."
        raise ArgumentError(msg)
    if retrieval not in (None, "one", "any"):
        msg = f"retrieval must be one or any, or None for both. Got {retrieval!r}."
        raise ArgumentError(msg)
    targets.sort(key=lambda target: (target.length, target.coefficient))
    retrievals: tuple[Retrieval, ...] = ("one", "any") if retrieval is None else (retrieval,)
    logit = largest_logit(head)
    return HeadPlan(
        head=head,
        largest_logit=logit.upper,
        retrievals=retrievals,
        lengths=tuple(_at_length(head, target, logit) for target in targets),
        longest={
            kind: _longest(head, targets[-1].coefficient, kind)
            for kind in retrievals
            if not head.schedule.varies
        },
        needs=tuple(need for kind in retrievals for need in _needs(head, targets[-1], kind)),
        norms=None if head.heads is None else _compare_norms(head, targets[-1]),
    )


def largest_logit(head: PlannedHead) -> Enclosure:
    """κ: the largest |logit| before schedule, cap and temperature, and largest singular value.

    **tight** for unit gains (T10 for headwise norm, T11 for one head under layerwise norm); for
    gains that differ, attained where some coordinate has `gain`.
    """
    if head.norm == "none":
        return Enclosure.exact(head.sigma or 0.0)
    if head.norm == "l2":
        return product(1.0 if head.scale is None else head.scale, head.gain)
    shared = (head.heads or 1) * head.groups if head.norm == "layerwise" else 1
    radii = product(sqrt_enclosure(shared), head.head_dim)
    if head.scale is None:
        radii = quotient(radii, sqrt_enclosure(head.head_dim))
    return product(1.0 if head.scale is None else head.scale, radii, head.gain)


def _at_length(head: PlannedHead, target: Target, logit: Enclosure) -> LengthPlan:
    n, p = target.length, target.coefficient
    items = _items(head, n)
    spread, kappa = _spread(head, n, logit), _kappa(head, n, logit).upper
    rank = head.directions
    proved = [rigor_capacity.log_capacity(np.full(rank, kappa)).upper]
    if kappa <= rank:
        proved.append(rigor_capacity.flat_log_capacity(rank, kappa).upper)
    one, every = _one(head, n, logit), _any(head, n, logit)
    # A soft cap bends every row but that of a token that wins it, and so holds half of it.
    bent = every if head.soft_cap is None else max(0.5, every)
    return LengthPlan(
        target=target,
        multiplier=head.schedule.enclose(n),
        spread=spread.upper,
        one_ceiling=one,
        any_ceiling=min(one, bent),
        log_capacity=min(proved),
        capacity=_exp_up(min(proved)),
        flat_estimate=(
            None if kappa <= rank else rigor_capacity.flat_log_capacity_estimate(rank, kappa)
        ),
        retrievable=(
            math.inf if head.soft_cap is not None and p < 0.5 else _retrievable(rank, kappa, p)
        ),
        entropy_floor=None if head.sink is not None else rigor.min_entropy(items, spread).lower,
        one_ruled_out=_ruled_out(head, n, p, "one", logit),
        any_ruled_out=_ruled_out(head, n, p, "any", logit),
    )


@in_precision
def _exp_up(log: float) -> float:
    return round_up(arb(log).exp())


@lru_cache(maxsize=16)  # without a schedule every length asks the same
def _retrievable(rank: int, kappa: float, p: float) -> float:
    """The largest number of keys for which T12 to T13′ do not rule p out for each."""
    spectrum = np.full(rank, kappa)
    turn = whole_turning_point(
        lambda keys: rigor_capacity.any_token_ceiling(keys, spectrum).upper < p, 1, LONGEST
    )
    return math.inf if turn.yes is None else turn.yes - 1


def _items(head: PlannedHead, n: int) -> int:
    return n if head.window is None else min(n, head.window)


def _kappa(head: PlannedHead, n: int, logit: Enclosure) -> Enclosure:
    """All singular values, schedule and temperature included, as if there were no cap."""
    return quotient(product(logit, head.schedule.enclose(n)), head.temperature)


def _spread(head: PlannedHead, n: int, logit: Enclosure) -> Enclosure:
    spread = product(2, logit, head.schedule.enclose(n))
    if head.soft_cap is not None:
        spread = rigor.capped_spread(spread, head.soft_cap)
    return quotient(spread, head.temperature)


def _one(head: PlannedHead, n: int, logit: Enclosure) -> float:
    """The ceiling for one token (T1, T7, T8)."""
    spread = _spread(head, n, logit)
    if head.sink is None or math.isinf(spread.upper):
        return rigor.max_coefficient(_items(head, n), spread).upper
    top = quotient(spread, 2)
    return rigor.max_coefficient_with_sink(_items(head, n), spread, top, sink=head.sink).upper


def _any(head: PlannedHead, n: int, logit: Enclosure) -> float:
    """The ceiling for any token as if there were no cap (T12, T13, T13′)."""
    keys, kappa = _items(head, n) - 1, _kappa(head, n, logit).upper
    if keys <= 1 or math.isinf(kappa):
        return 1.0
    return rigor_capacity.any_token_ceiling(keys, np.full(head.directions, kappa)).upper


def _ruled_out(
    head: PlannedHead, n: int, p: float, retrieval: Retrieval, logit: Enclosure | None = None
) -> bool:
    logit = largest_logit(head) if logit is None else logit
    if _one(head, n, logit) < p:
        return True
    if retrieval == "one" or (head.soft_cap is not None and p < 0.5):
        return False
    return _any(head, n, logit) < p


def _longest(head: PlannedHead, p: float, retrieval: Retrieval) -> float:
    turn = whole_turning_point(lambda n: _ruled_out(head, n, p, retrieval), 1, LONGEST)
    return math.inf if turn.yes is None else turn.yes - 1


def _needs(head: PlannedHead, target: Target, retrieval: Retrieval) -> list[Need]:
    n, p = target.length, target.coefficient

    def enough(changed: PlannedHead, logit: Enclosure | None = None) -> bool:
        return not _ruled_out(changed, n, p, retrieval, logit)

    def need(quantity: Quantity, turn: Turn) -> Need:
        return Need(quantity, retrieval, meets=turn.yes, ruled_out=turn.no)

    def stronger(value: float) -> PlannedHead:
        return replace(head, sigma=value) if head.norm == "none" else replace(head, gain=value)

    found = [
        need(
            "sigma" if head.norm == "none" else "gain",
            _strength(lambda value: enough(stronger(value)), enough(head, _UNLIMITED)),
        )
    ]
    turn = turning_point(lambda x: enough(replace(head, temperature=1 / x)))
    found.append(
        need(
            "temperature",
            Turn(
                None if turn.no is None else 1 / turn.no,
                # Where even the highest temperature tried will do, none is too high.
                math.inf if turn.no is None else None if turn.yes is None else 1 / turn.yes,
            ),
        )
    )
    log_head = replace(head, schedule=Schedule("log", (1.0,)))
    found.append(
        need(
            "log_factor",
            _strength(
                lambda value: enough(replace(head, schedule=Schedule("log", (value,)))),
                enough(log_head, _UNLIMITED),
            ),
        )
    )
    found.append(
        need(
            "head_dim",
            whole_turning_point(
                lambda width: enough(replace(head, head_dim=width)), head.rank or 1, WIDEST
            ),
        )
    )
    return found


def _strength(enough: Callable[[float], bool], ever: bool) -> Turn:
    """The turning point in a factor on the logits, 0 included; `ever` at infinity."""
    if enough(0.0):
        return Turn(None, 0.0)
    return turning_point(enough) if ever else Turn(math.inf, None)


def _compare_norms(head: PlannedHead, target: Target) -> NormComparison | None:
    if head.norm not in ("headwise", "layerwise") or head.heads is None:
        return None
    headwise, layerwise = replace(head, norm="headwise"), replace(head, norm="layerwise")
    one, alone = largest_logit(headwise), largest_logit(layerwise)
    return NormComparison(
        heads=head.heads,
        key_heads=head.groups,
        headwise=one.upper,
        layerwise=alone.upper,
        mean=one.upper,
        layerwise_mean=product(one, sqrt_enclosure(head.groups)).upper,
        headwise_plan=_at_length(headwise, target, one),
        layerwise_plan=_at_length(layerwise, target, alone),
    )
