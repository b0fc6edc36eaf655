"""T4: the spread a coefficient needs, and the length a spread reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion import symbolic
from dispersion.proofs.steps import Step, Theorem, at_most, at_most_from_zero, equal
from dispersion.proofs.symbols import d, h, odds, theta

if TYPE_CHECKING:
    from collections.abc import Iterator

k = sp.Symbol("m", integer=True, positive=True)  # items that hold p together
r = sp.Symbol("r", integer=True, positive=True)  # the others
p = sp.Symbol("p", positive=True)
share = odds / (1 + odds)  # p in (0, 1)
n = k + r


def steps() -> Iterator[Step]:
    """Solve the attained ceiling of T2 for the spread and for the length."""
    yield at_most_from_zero(
        "The ceiling of T2 grows with the spread",
        symbolic.set_mass(k, n, d),
        symbolic.set_mass(k, n, d + h),
        h,
    )
    yield at_most(
        "and falls with the number of items",
        symbolic.set_mass(k, n + h, d),
        symbolic.set_mass(k, n, d),
        why="So a coefficient p is within reach at the spreads above one value and at the lengths "
        "up to one value. Write p = ω/(1+ω) with odds ω > 0.",
    )
    yield equal(
        "At the required spread the ceiling is p",
        symbolic.set_mass(k, n, symbolic.required_spread(n, share, items=k)),
        share,
    )
    yield equal(
        "and at the reachable length too",
        symbolic.set_mass(k, symbolic.reachable_length(d, share, items=k), d),
        share,
    )
    yield equal(
        "The two are inverse to each other",
        symbolic.reachable_length(symbolic.required_spread(n, share, items=k), share, items=k),
        n,
    )
    yield equal(
        "The required spread is 0 at p = m/n, the ceiling of spread 0; below that any row will do",
        symbolic.required_spread(n, k / n, items=k),
        0,
        why="The logarithm grows with p: it is negative exactly for p < m/n, where 0 replaces it.",
    )
    yield at_most(
        "Its argument grows with p",
        0,
        sp.Derivative((n - k) * p / (k * (1 - p)), p),
        where={p: share},
    )
    yield equal(
        "A temperature θ multiplies the required spread",
        symbolic.set_mass(
            k, n, symbolic.required_spread(n, share, items=k, temperature=theta), temperature=theta
        ),
        share,
    )
    yield equal(
        "and the length is reached at that temperature",
        symbolic.set_mass(
            k,
            symbolic.reachable_length(d, share, items=k, temperature=theta),
            d,
            temperature=theta,
        ),
        share,
    )


THEOREM = Theorem(
    name="T4",
    title="inverses",
    statement="One of n items can hold p only if δ ≥ log((n−1)p/(1−p)), and at spread δ only while "
    "n ≤ 1+e^δ(1−p)/p. For m items together: log((n−m)p/(m(1−p))) and m(1+e^δ(1−p)/p). Both "
    "are attained.",
    formula=sp.Ge(d, symbolic.required_spread(n, p, items=k), evaluate=False),
    hypotheses={
        "row": "n ≥ 2 unmasked items with real logits of spread δ; 1 ≤ m < n",
        "coefficient": "0 < p < 1",
    },
    steps=steps,
)
