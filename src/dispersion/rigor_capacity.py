"""How many tokens a head can retrieve at all, enclosed: T12, T13, T13′ and T13″.

A context has n keys, common and visible to all queries, and a query for each of them; p is the
smallest coefficient that a query puts on its own target. The query token's own key is not one of
the n, so a causal head over n tokens has n − 1. κ_1 ≥ κ_2 ≥ … are the singular values of AᵀC with
the logit scale. Every bound grows with every κ_i, so upper bounds on all of them certify it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from flint import arb

from dispersion._arrays import check
from dispersion._enclosing import between, checked, clipped, count_of
from dispersion.balls import Number, in_precision, round_down, round_up
from dispersion.capacity import water_level
from dispersion.enclosure import Enclosure
from dispersion.errors import ArgumentError
from dispersion.rigor_flat import flat_log_capacity, flat_log_capacity_estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "any_token_ceiling",
    "capacity",
    "flat_log_capacity",
    "flat_log_capacity_estimate",
    "log_capacity",
    "share",
    "simplex_ceiling",
    "steep_ceiling",
]

_CHUNK = 64  # factors multiplied before one logarithm is taken


@in_precision
def log_capacity(singular_values: Sequence[float] | NDArray[np.float64]) -> Enclosure:
    """The logarithm of a head's capacity N by T13, in nats: min over t > 0, enclosed. **upper**.

    `upper` is the certificate: the bound holds at every t, and it is evaluated at a t next to the
    minimiser. `lower` belongs to the same minimum, so it says how close the evaluation came, not
    what a head reaches.

    Args:
        singular_values: upper bounds on all κ_i, in any order.

    Raises:
        ArgumentError: a value is negative, infinite or nan.
    """
    kappa = _values(singular_values)
    kappa = kappa[kappa > 0]
    if not len(kappa):
        return Enclosure.exact(0.0)
    level = float(water_level(kappa))
    upper = round_up(_objective(kappa, arb(level)))
    # The minimiser is the root of a decreasing function: signs at both ends enclose it.
    width = 2.0**-40
    low, high = level * (1 - width), level * (1 + width)
    lower = 0.0
    if _pull(kappa, arb(low)) > arb(low) and _pull(kappa, arb(high)) < arb(high):
        lower = max(0.0, round_down(_objective(kappa, arb(low).union(arb(high)))))
    return Enclosure(min(lower, upper), min(upper, float(kappa.max())))


def capacity(singular_values: Sequence[float] | NDArray[np.float64]) -> Enclosure:
    """N of `log_capacity`, inf where float64 cannot hold it. **upper** (T13). Raises alike."""
    log = log_capacity(singular_values)
    return _exp(log)


@in_precision
def simplex_ceiling(n: int, singular_value: Number) -> Enclosure:
    """1/(1+(n−1)e^(−κ n/(n−1))) for the largest singular value κ. **tight** (T12).

    Attained by a regular simplex when n − 1 singular values equal κ. 1 at n = 1.

    Raises:
        ArgumentError: n is not a whole number of at least 1, or the value is negative or nan.
    """
    n = count_of("n", n)
    low, high = checked("singular_values", singular_value)
    if n == 1:
        return Enclosure.exact(1.0)

    def ceiling(kappa: float) -> Any:
        return 1 / (1 + (n - 1) * (-arb(kappa) * n / (n - 1)).exp())

    return clipped(between(ceiling, low, high))


@in_precision
def steep_ceiling(n: int, second: Number, first: Number | None = None) -> Enclosure:
    """1/(1+(⌈n/2⌉−1)e^(−2κ_2)+⌊n/2⌋e^(−2κ_1)) from the two largest singular values (T13″).

    **upper**, and **tight** for rank one, κ_2 = 0: half of the keys at each end of the segment
    attain it. For heads without rotation and without query bias. Sort the keys along the first
    singular direction: for the query of the median key, one side's ⌈n/2⌉−1 keys fall behind by
    at most 2κ_2, the others by at most 2κ_1. Without `first` their share is left out.

    Raises:
        ArgumentError: n is not a whole number of at least 1, or a value is negative or not finite.
    """
    n = count_of("n", n)
    low, high = checked("singular_values", second)
    near, far = (n + 1) // 2 - 1, n // 2

    def ceiling(two: float, one: float | None) -> Any:
        rest = 0 if one is None else far * (-2 * arb(one)).exp()
        return 1 / (1 + near * (-2 * arb(two)).exp() + rest)

    one_low, one_high = (None, None) if first is None else checked("singular_values", first)
    return clipped(Enclosure(round_down(ceiling(low, one_low)), round_up(ceiling(high, one_high))))


def any_token_ceiling(
    n: int, singular_values: Sequence[float] | NDArray[np.float64], *, steep: bool = False
) -> Enclosure:
    """The largest coefficient that every one of n keys can get: least of T12 to T13″. **upper**.

    Args:
        n: keys common to all queries, without the query token's own.
        singular_values: upper bounds on all κ_i.
        steep: whether T13″ applies: no rotation and no query bias.

    Returns:
        `upper` is the certificate. `lower` is that of the same formula, not of a witness.

    Raises:
        ArgumentError: n is not a whole number of at least 1, or a value is negative or not finite.
    """
    n = count_of("n", n)
    kappa = np.sort(_values(singular_values))[::-1]
    rank = int(np.count_nonzero(kappa))
    if n == 1:
        return Enclosure.exact(1.0)
    if rank == 0:
        return share(Enclosure.exact(0.0), n)
    found = [simplex_ceiling(n, float(kappa[0])), share(log_capacity(kappa), n)]
    found.append(share(flat_log_capacity(rank, float(kappa[0])), n))
    if steep:
        second = float(kappa[1]) if len(kappa) > 1 else 0.0
        found.append(steep_ceiling(n, second, float(kappa[0])))
    return Enclosure(min(e.lower for e in found), min(e.upper for e in found))


@in_precision
def share(log: Enclosure, n: int) -> Enclosure:
    """The ceiling N/n from log N, at most 1. **upper**."""
    return clipped(
        Enclosure(
            min(1.0, max(0.0, round_down(arb(log.lower).exp() / n))),
            min(1.0, round_up(arb(log.upper).exp() / n)),
        )
    )


@in_precision
def _exp(log: Enclosure) -> Enclosure:
    return Enclosure(max(1.0, round_down(arb(log.lower).exp())), round_up(arb(log.upper).exp()))


def _objective(kappa: NDArray[np.float64], t: Any) -> Any:
    """What T13 minimises, t + ½ Σ log((κ/t)²/(2κ/t − 1)) over κ > t; a ball t gives its range."""
    total = t
    over = [float(k) for k in kappa if arb(float(k)) > t]
    unsure = [float(k) for k in kappa if not arb(float(k)) > t and not arb(float(k)) <= t]
    for first in range(0, len(over), _CHUNK):
        factor = arb(1)
        for value in over[first : first + _CHUNK]:
            x = arb(value) / t
            factor *= 1 + (x - 1) ** 2 / (2 * x - 1)
        total += factor.log() / 2
    for value in unsure:
        # t's ball contains κ: the term lies between 0 and its value at the lower end.
        x = arb(value) / t.lower()
        total += arb(0).union((1 + (x - 1) ** 2 / (2 * x - 1)).log() / 2)
    return total


def _pull(kappa: NDArray[np.float64], t: Any) -> Any:
    total = arb(0)
    for value in kappa:
        if value > float(t.mid()):
            total += (arb(float(value)) - t) / (2 * arb(float(value)) - t)
    return total


def _values(singular_values: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    try:
        kappa = np.asarray(singular_values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        msg = f"singular_values must be a list of numbers. Got: {error}."
        raise ArgumentError(msg) from None
    if kappa.ndim != 1 or not len(kappa):
        msg = f"singular_values must be a list of at least 1 number. Got shape {kappa.shape}."
        raise ArgumentError(msg)
    check("singular_values", kappa)
    return kappa
