"""T1: what a spread allows one item."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion import symbolic
from dispersion.proofs.steps import Step, Theorem, at_most, at_most_from_zero, equal
from dispersion.proofs.symbols import d, h, j, m, n, theta, x

if TYPE_CHECKING:
    from collections.abc import Iterator

CEILING = symbolic.max_coefficient(n, d)
FLOOR = symbolic.min_coefficient(n, d)
LOOSE = symbolic.loose_max_coefficient(n, d)
rest = sp.Symbol("R", positive=True)


def steps() -> Iterator[Step]:
    """Divide by the item's own term; each of the other n−1 is between e^−δ and e^δ."""
    yield equal(
        "A coefficient depends on differences of logits only",
        sp.exp(x) / (sp.exp(x) + rest * sp.exp(x)),
        1 / (1 + rest),
        why="x is the item's logit, and R sums e^(l_j − x) over the other n−1 items.",
    )
    yield at_most_from_zero(
        "No other item's term is below e^−δ",
        sp.exp(-d),
        sp.exp(-d + h),
        h,
        why="By the spread l_j − x = −δ + h with some h ≥ 0.",
    )
    yield equal(
        "Over the n−1 other items these bounds add up",
        sp.Sum(sp.exp(-d), (j, 2, n)),
        (n - 1) * sp.exp(-d),
    )
    yield at_most(
        "The ceiling",
        1 / (1 + rest),
        CEILING,
        where={rest: m * sp.exp(-d) + h, n: m + 1},
        why="R exceeds the sum by some h ≥ 0, which only lowers the coefficient.",
    )
    yield equal(
        "It is attained by one item at the top and the rest δ lower",
        sp.exp(x) / (sp.exp(x) + (n - 1) * sp.exp(x - d)),
        CEILING,
    )
    yield at_most_from_zero(
        "No other item's term is above e^δ",
        sp.exp(-h),
        1,
        h,
        why="By the spread l_j − x = δ − h with some h ≥ 0; the common factor e^δ is left out.",
    )
    yield at_most(
        "The floor",
        FLOOR,
        1 / (1 + rest),
        where={sp.exp(d): (rest + h) / (n - 1)},
        why="R falls short of (n−1)e^δ by some h ≥ 0. For n = 1 there is nothing to show.",
    )
    yield equal(
        "It is attained by one item at the bottom and the rest δ higher",
        sp.exp(x) / (sp.exp(x) + (n - 1) * sp.exp(x + d)),
        FLOOR,
    )
    yield at_most("The ceiling never exceeds 1", CEILING, 1, where={n: m + 1})
    yield equal(
        "The published ceiling lies above it by",
        LOOSE - CEILING,
        (sp.exp(d) - 1) / (n * (1 + (n - 1) * sp.exp(-d))),
    )
    yield at_most_from_zero(
        "and that is positive for δ > 0, so it is never attained", d, sp.exp(d) - 1, d, 2
    )
    yield equal(
        "The published floor lies below the exact one by",
        FLOOR - sp.exp(-d) / n,
        (1 - sp.exp(-d)) / (n * (1 + (n - 1) * sp.exp(d))),
        why="1 − e^−δ = e^−δ(e^δ − 1) is positive for δ > 0 by the step before.",
    )
    yield equal(
        "A temperature θ divides the logits, hence the spread: the row of the ceiling",
        sp.exp(x / theta) / (sp.exp(x / theta) + (n - 1) * sp.exp((x - d) / theta)),
        symbolic.max_coefficient(n, d, temperature=theta),
    )
    yield equal(
        "and that of the floor",
        sp.exp(x / theta) / (sp.exp(x / theta) + (n - 1) * sp.exp((x + d) / theta)),
        symbolic.min_coefficient(n, d, temperature=theta),
    )


THEOREM = Theorem(
    name="T1",
    title="dispersion",
    statement="The largest of n coefficients is at most 1/(1+(n−1)e^−δ) and the smallest at least "
    "1/(1+(n−1)e^δ). Both are attained. They imply the published e^−δ/n ≤ α ≤ e^δ/n, which is "
    "not attained for δ > 0 and n ≥ 2.",
    formula=sp.And(
        sp.Le(FLOOR, sp.Symbol("α_i"), evaluate=False),
        sp.Le(sp.Symbol("α_i"), CEILING, evaluate=False),
        evaluate=False,
    ),
    hypotheses={
        "row": "n ≥ 1 unmasked items with real logits l_1..l_n; α = softmax(l)",
        "spread": "max l − min l ≤ δ",
    },
    steps=steps,
)
