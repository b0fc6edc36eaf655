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
from typing import TYPE_CHECKING

import numpy as np
from flint import arb

from dispersion import rigor, rigor_capacity
from dispersion.balls import in_precision, product, quotient, round_up
from dispersion.budget import Budget, layerwise_budget
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError
from dispersion.lengths import DEFAULT_LENGTHS, LONGEST
from dispersion.planned import (
    RETRIEVALS,
    WIDEST,
    HeadPlan,
    LengthPlan,
    Need,
    NormComparison,
    PlannedHead,
    Quantity,
)
from dispersion.schedules import Schedule
from dispersion.solving import Turn, turning_point, whole_turning_point
from dispersion.verdict import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dispersion.verdict import Retrieval

__all__ = ["PlannedHead", "largest_logit", "plan_head", "plan_length"]

_UNLIMITED = Enclosure.exact(math.inf)
_DISTANCE = 2.0**-22  # of a solved value and its neighbour: well below the digits printed


def plan_head(head: PlannedHead, targets: Sequence[Target] | None = None) -> HeadPlan:
    """Bound a planned head at each target, and solve for what the longest one takes.

    Args:
        head: the head.
        targets: lengths and coefficients; what is solved for covers every retrieval among them.
            By default ½ at 4K to 1M tokens, for one token and for any.

    Raises:
        ArgumentError: no target, or one with sink tokens.
    """
    if targets is None:
        targets = [Target(n, retrieval=kind) for n in DEFAULT_LENGTHS for kind in RETRIEVALS]
    if not targets or any(target.sink_tokens for target in targets):
        msg = "targets must be one or more, about single tokens (sink_tokens=0)."
        raise ArgumentError(msg)
    retrievals = tuple(kind for kind in RETRIEVALS if any(kind == t.retrieval for t in targets))
    asked = sorted({(target.length, target.coefficient) for target in targets})
    targets = [Target(length, coefficient) for length, coefficient in asked]
    rows = tuple(plan_length(head, target) for target in targets)
    return HeadPlan(
        head=head,
        largest_logit=largest_logit(head).upper,
        retrievals=retrievals,
        lengths=rows,
        longest={
            kind: _longest(head, targets[-1].coefficient, kind, rows[-1].retrievable)
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
    return _budget(head).single


def _budget(head: PlannedHead) -> Budget:
    """T11 for the head's layer; under headwise norm every head is a layer of its own."""
    groups: tuple[int, ...] = (1,)
    if head.norm == "layerwise" and head.heads is not None:
        groups = (head.heads // head.groups,) * head.groups
    return layerwise_budget(groups, head.head_dim, gain=head.gain, scale=head.scale)


def plan_length(head: PlannedHead, target: Target) -> LengthPlan:
    """What the head can do at one length, for one token and for any, with nothing solved for."""
    n, p, logit = target.length, target.coefficient, largest_logit(head)
    items = _items(head, n)
    spread, kappa = _spread(head, n, logit), _kappa(head, n, logit).upper
    rank = head.directions
    proved = [rigor_capacity.log_capacity(np.full(rank, kappa)).upper]
    if kappa <= rank:
        proved.append(rigor_capacity.flat_log_capacity(rank, kappa).upper)
    capacity = _exp_up(min(proved))
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
        capacity=capacity,
        flat_estimate=(
            None if kappa <= rank else rigor_capacity.flat_log_capacity_estimate(rank, kappa)
        ),
        retrievable=(
            math.inf if head.soft_cap is not None and p < 0.5 else _retrievable(kappa, capacity, p)
        ),
        entropy_floor=None if head.sink is not None else rigor.min_entropy(items, spread).lower,
        one_ruled_out=_ruled_out(head, n, p, "one", logit),
        any_ruled_out=_ruled_out(head, n, p, "any", logit),
    )


@in_precision
def _exp_up(log: float) -> float:
    return round_up(arb(log).exp())


def _retrievable(kappa: float, capacity: float, p: float) -> float:
    """The largest number of keys for which neither T12 nor N/keys < p rules p out for each."""
    turn = whole_turning_point(
        lambda keys: rigor_capacity.simplex_ceiling(keys, kappa).upper < p, 1, LONGEST
    )
    most = quotient(capacity, p).upper
    if turn.yes is not None:
        most = min(most, turn.yes - 1)
    return float(math.floor(most)) if most <= LONGEST else math.inf


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
    keys, kappa = _items(head, n) - 1, _kappa(head, n, logit).upper
    if keys <= 1 or math.isinf(kappa):
        return False
    # T12 alone is quick, and often enough.
    return rigor_capacity.simplex_ceiling(keys, kappa).upper < p or _any(head, n, logit) < p


def _longest(head: PlannedHead, p: float, retrieval: Retrieval, retrievable: float) -> float:
    """The largest length not ruled out, for a schedule that is constant."""
    turn = whole_turning_point(lambda n: _ruled_out(head, n, p, "one"), 1, LONGEST)
    longest = math.inf if turn.yes is None else turn.yes - 1
    most = retrievable + 1  # the query's own key is in the row too
    if retrieval == "one" or (head.window is not None and head.window <= most):
        return longest
    return min(longest, most)


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
    turn = turning_point(lambda x: enough(replace(head, temperature=1 / x)), distance=_DISTANCE)
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
    return turning_point(enough, distance=_DISTANCE) if ever else Turn(math.inf, None)


def _compare_norms(head: PlannedHead, target: Target) -> NormComparison | None:
    if head.norm not in ("headwise", "layerwise") or head.heads is None:
        return None
    headwise, layerwise = replace(head, norm="headwise"), replace(head, norm="layerwise")
    one, budget = largest_logit(headwise), _budget(layerwise)
    return NormComparison(
        heads=head.heads,
        key_heads=head.groups,
        headwise=one.upper,
        layerwise=budget.single.upper,
        mean=budget.mean.upper,
        layerwise_mean=quotient(budget.apart, head.heads).upper,
        headwise_plan=plan_length(headwise, target),
        layerwise_plan=plan_length(layerwise, target),
    )
