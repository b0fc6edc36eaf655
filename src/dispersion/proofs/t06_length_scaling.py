"""T6: logits multiplied by c·log n."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion import symbolic
from dispersion.proofs.steps import Step, Theorem, at_most_from_zero, equal, tends
from dispersion.proofs.symbols import d, h, theta

if TYPE_CHECKING:
    from collections.abc import Iterator

n = sp.Symbol("n", positive=True)
c = sp.Symbol("c", nonnegative=True)
e = sp.Symbol("ε", positive=True)
CEILING = symbolic.length_scaled_max_coefficient(n, d, scale=c)


def steps() -> Iterator[Step]:
    """T1 at the scaled spread, and three limits."""
    yield equal(
        "Scaled logits have the spread cδ·log n, and T1 at that spread is the ceiling",
        symbolic.max_coefficient(n, c * d * sp.log(n)),
        CEILING,
        why="c·log n ≥ 0 for n ≥ 1: the order of the logits is kept. T1's row attains it.",
    )
    yield equal(
        "The denominator less 1 splits into two powers",
        (n - 1) * n ** (-c * d),
        n ** (1 - c * d) - n ** (-c * d),
    )
    yield tends("Above 1 the powers vanish", n**-e, n, sp.oo, 0, why="cδ = 1 + ε: n^(1−cδ) = n^−ε.")
    yield tends(
        "and the ceiling tends to 1",
        CEILING.subs(c, (1 + e) / d),
        n,
        sp.oo,
        1,
    )
    yield tends("At cδ = 1 it tends to 1/2", CEILING.subs(c, 1 / d), n, sp.oo, sp.Rational(1, 2))
    share = theta / (1 + theta)  # cδ in (0, 1)
    yield tends(
        "Below 1, with cδ = θ/(1+θ), the second term of the denominator exceeds all bounds",
        (n - 1) * n ** (-share),
        n,
        sp.oo,
        sp.oo,
    )
    yield tends("and the ceiling tends to 0", CEILING.subs(c, share / d), n, sp.oo, 0)
    yield at_most_from_zero(
        "A larger factor gives a higher ceiling",
        symbolic.max_coefficient(n, d).subs(n, 1 + e),
        symbolic.max_coefficient(n, d + h).subs(n, 1 + e),
        h,
        why="n = 1 + ε.",
    )


THEOREM = Theorem(
    name="T6",
    title="length-scaled logits",
    statement="If logits of spread δ are multiplied by c·log n, the ceiling is 1/(1+(n−1)n^(−cδ)), "
    "attained. As n grows it tends to 1, 1/2 or 0 where cδ is above, at or below 1.",
    formula=sp.Le(sp.Symbol("α_i"), CEILING, evaluate=False),
    hypotheses={
        "row": "n ≥ 1 unmasked items with real logits of spread at most δ before scaling",
        "schedule": "c ≥ 0, natural logarithm",
    },
    steps=steps,
)
