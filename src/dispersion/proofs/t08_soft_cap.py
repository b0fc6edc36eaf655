"""T8: a soft cap on the logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion import symbolic
from dispersion.proofs.steps import Step, Theorem, at_most_from_zero, equal
from dispersion.proofs.symbols import d

if TYPE_CHECKING:
    from collections.abc import Iterator

c = sp.Symbol("c", positive=True)
u = sp.Symbol("u", real=True)  # middle of two logits, over c
v = sp.Symbol("v", real=True)  # half of their distance, over c
z = sp.Symbol("z", real=True)
s = sp.Symbol("s", positive=True)
q, k = sp.symbols("q k", real=True)


def steps() -> Iterator[Step]:
    """Two logits at a given distance spread most when they lie symmetrically about 0."""
    difference = sp.tanh(u + v) - sp.tanh(u - v)
    yield equal(
        "Off centre, two capped logits lose against the symmetric pair",
        2 * sp.tanh(v) - difference,
        2 * sp.tanh(v) * sp.sinh(u) ** 2 / (sp.cosh(v) ** 2 + sp.sinh(u) ** 2),
        why="Logits are c(u ± v) before the cap; c is left out. For v ≥ 0 the right side is not "
        "negative.",
    )
    yield equal(
        "The symmetric pair at distance δ before the cap reaches the bound",
        c * (sp.tanh(d / 2 / c) - sp.tanh(-d / 2 / c, evaluate=False)),
        symbolic.capped_spread(d, c),
    )
    yield equal(
        "The bound grows with δ",
        sp.Derivative(symbolic.capped_spread(d, c), d),
        1 / sp.cosh(d / (2 * c)) ** 2,
        why="So the largest distance in the row gives the largest spread.",
    )
    yield equal(
        "It stays below 2c",
        2 * c - symbolic.capped_spread(d, c),
        4 * c * sp.exp(-d / c) / (1 + sp.exp(-d / c)),
        why="The right side is positive.",
    )
    yield equal(
        "A cap never moves two logits apart: z − tanh z has the slope",
        sp.Derivative(z - sp.tanh(z), z),
        sp.tanh(z) ** 2,
        why="So capped gaps are at most the gaps before, δ stays a bound, and a token that is its "
        "row's largest has a smaller coefficient after the cap. A coefficient of 1/2 or more "
        "belongs to such a token: any bound B on uncapped coefficients gives max(1/2, B).",
    )
    point = c * sp.atanh(sp.sqrt(1 - s))
    yield equal(
        "The slope of c·tanh(z/c) is s where tanh(z/c) = √(1−s)",
        sp.Subs(sp.Derivative(c * sp.tanh(z / c), z), z, point),
        s,
    )
    yield equal(
        "The tangent there has the intercept",
        c * sp.tanh(point / c) - s * point,
        symbolic.capped_intercept(s, c),
    )
    yield equal(
        "and the curve bends down for z ≥ 0",
        sp.Derivative(sp.tanh(z), (z, 2)),
        -2 * sp.tanh(z) / sp.cosh(z) ** 2,
        why="so the tangent lies above it there.",
    )
    yield equal(
        "A hard clip bounds each product of coordinates",
        c**2 - q * k,
        ((c - q) * (c + k) + (c + q) * (c - k)) / 2,
        why="If |q|, |k| ≤ c the right side is a sum of products of nonnegative factors.",
    )
    yield at_most_from_zero(
        "The bound never exceeds δ",
        sp.tanh(v),
        v,
        v,
        why="tanh v ≤ v for v = δ/2c ≥ 0, multiplied by 2c.",
    )


THEOREM = Theorem(
    name="T8",
    title="soft cap",
    statement="After l = c·tanh(z/c) a row whose z spread by at most δ spreads by at most "
    "2c·tanh(δ/2c), which is below 2c and at most δ; attained by logits placed symmetrically about "
    "0.",
    formula=sp.Le(sp.Symbol("δ_l"), symbolic.capped_spread(d, c), evaluate=False),
    hypotheses={
        "cap": "c > 0",
        "spread": "max z − min z ≤ δ",
    },
    steps=steps,
)
