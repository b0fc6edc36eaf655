"""T14: what a measured coefficient is worth, and how it falls with length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion import symbolic
from dispersion.proofs.steps import Step, Theorem, at_most_from_zero, equal, tends
from dispersion.proofs.symbols import d, h, j, odds

if TYPE_CHECKING:
    from collections.abc import Iterator

r = sp.Symbol("r", integer=True, positive=True)  # n − 1
more = sp.Symbol("N", integer=True, positive=True)
p = odds / (1 + odds)
mean = sp.Symbol("E", positive=True)  # expectation of one term e^(l_j − l_i)
n, c, g = sp.symbols("n c γ", positive=True)
logit = sp.log(p / (1 - p))


def steps() -> Iterator[Step]:
    """T4 backwards, then the expectation of a sum."""
    effective = symbolic.required_spread(r + 1, p)
    yield equal(
        "At the effective spread the ceiling of T1 is the measured p",
        symbolic.max_coefficient(r + 1, effective),
        p,
    )
    yield at_most_from_zero(
        "The ceiling grows with the spread",
        symbolic.max_coefficient(r + 1, d),
        symbolic.max_coefficient(r + 1, d + h),
        h,
        why="A row of spread δ has p ≤ ceiling(δ), so δ_eff ≤ δ, and δ is at most what is "
        "certified for the head. Where δ_eff is negative there is nothing to show.",
    )
    yield equal("In odds it is", effective, sp.log(r) + logit)
    yield equal(
        "The inverse odds are a sum over the other tokens",
        (1 - p) / p,
        1 / odds,
        why="(1−p)/p = Σ_{j≠i} e^(l_j − l_i), by T1's first step.",
    )
    yield equal(
        "Exchangeable tokens: every term has one expectation E, so between n and N tokens",
        sp.Sum(mean, (j, 1, more - 1)) / sp.Sum(mean, (j, 1, r)),
        (more - 1) / r,
        why="n − 1 = r terms at length n, N − 1 at length N.",
    )
    yield equal(
        "If odds fall as n^−γ, the dispersion exponent is γ",
        -n * sp.Derivative(sp.log(c * n**-g), n),
        g,
        why="−d logit(p)/d log n with odds c·n^−γ.",
    )
    yield equal(
        "A row at its ceiling with spread δ has the odds",
        symbolic.max_coefficient(n, d) / (1 - symbolic.max_coefficient(n, d)),
        sp.exp(d) / (n - 1),
    )
    yield tends(
        "and suffers the full theorem: its exponent tends to 1",
        sp.simplify(-n * sp.diff(d - sp.log(n - 1), n)),
        n,
        sp.oo,
        1,
    )
    yield equal(
        "A coefficient that does not depend on n has the exponent",
        -n * sp.Derivative(sp.log(c), n),
        0,
    )
    one, two = sp.symbols("p_1 p_2", positive=True)
    average = (one + two) / 2
    yield equal(
        "Averages of coefficients are another matter: mean inverse odds exceed those of the mean",
        ((1 - one) / one + (1 - two) / two) / 2 - (1 - average) / average,
        (one - two) ** 2 / (2 * one * two * (one + two)),
        why="So a mean p claims more spread than its rows have on average: average the logits.",
    )


THEOREM = Theorem(
    name="T14",
    title="effective spread",
    statement="A measured coefficient p among n items is worth δ_eff = log((n−1)p/(1−p)), at most "
    "the spread of its row. If the other tokens are exchangeable, E[(1−p)/p] scales by (N−1)/(n−1) "
    "from n to N tokens. The dispersion exponent −d logit(p)/d log n is γ where odds fall as n^−γ.",
    formula=sp.Le(symbolic.required_spread(n, sp.Symbol("p", positive=True)), d, evaluate=False),
    hypotheses={
        "row": "n ≥ 2 unmasked items, 0 < p < 1, one single row",
        "exchangeable": "for the scaling: the terms e^(l_j − l_i), j ≠ i, have one expectation, "
        "whatever n",
    },
    steps=steps,
    scope="The exponents of real heads are measured; no step says what they are.",
)
