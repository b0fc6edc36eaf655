"""T2: what a spread allows several items together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion import symbolic
from dispersion.proofs.steps import Step, Theorem, at_most, at_most_from_zero, equal
from dispersion.proofs.symbols import d, h, theta, x

if TYPE_CHECKING:
    from collections.abc import Iterator

k = sp.Symbol("m", integer=True, positive=True)  # items in the set
others = sp.Symbol("r", integer=True, nonnegative=True)  # items outside it
held = sp.Symbol("P", positive=True)
left = sp.Symbol("Q", positive=True)
i = sp.Symbol("i", integer=True, positive=True)
j = sp.Symbol("j", integer=True, positive=True)
weight = sp.Function("w", positive=True)
total = k + others
MOST = symbolic.set_mass(k, total, d)
LEAST = symbolic.min_set_mass(k, total, d)


def steps() -> Iterator[Step]:
    """Compare every item inside the set with every item outside it."""
    yield at_most_from_zero(
        "A pair of one item inside and one outside: e^(l_i)·e^−δ ≤ e^(l_j)",
        sp.exp(x - d),
        sp.exp(x - d + h),
        h,
        why="By the spread l_j = l_i − δ + h with some h ≥ 0.",
    )
    yield equal(
        "Summed over the r items outside, the left side counts every inside term r times",
        sp.Sum(weight(i), (j, 1, others)),
        others * weight(i),
        why="Likewise the right side counts every outside term m times when summed over the set. "
        "So r·P·e^−δ ≤ m·Q, where P and Q are the sums of e^l inside and outside.",
    )
    yield at_most(
        "The most: the share P/(P+Q)",
        held / (held + left),
        MOST,
        where={left: held * others * sp.exp(-d) / k + h},
        why="Q = rPe^−δ/m + h with some h ≥ 0.",
    )
    yield equal(
        "It is attained by m items at the top and the r others δ lower",
        k * sp.exp(x) / (k * sp.exp(x) + others * sp.exp(x - d)),
        MOST,
    )
    yield at_most(
        "The least: the share P/(P+Q)",
        LEAST,
        held / (held + left),
        where={sp.exp(d): k * (left + h) / (others * held)},
        why="With inside and outside exchanged, m·Q ≤ r·P·e^δ; it falls short by some m·h, h ≥ 0. "
        "For r = 0 the share is 1.",
    )
    yield equal(
        "It is attained by m items at the bottom and the r others δ higher",
        k * sp.exp(x) / (k * sp.exp(x) + others * sp.exp(x + d)),
        LEAST,
    )
    yield equal(
        "A temperature θ divides the logits, hence the spread: the row of the most",
        k * sp.exp(x / theta) / (k * sp.exp(x / theta) + others * sp.exp((x - d) / theta)),
        symbolic.set_mass(k, total, d, temperature=theta),
    )
    yield equal(
        "and that of the least",
        k * sp.exp(x / theta) / (k * sp.exp(x / theta) + others * sp.exp((x + d) / theta)),
        symbolic.min_set_mass(k, total, d, temperature=theta),
    )


THEOREM = Theorem(
    name="T2",
    title="set mass",
    statement="m of the n items hold together at most m/(m+(n−m)e^−δ) and at least "
    "m/(m+(n−m)e^δ). Both are attained. With m the number of sink tokens the first is the ceiling "
    "of the sink.",
    formula=sp.Le(sp.Symbol("P/(P+Q)"), MOST, evaluate=False),
    hypotheses={
        "row": "n = m + r ≥ 1 unmasked items with real logits; m = 0 is the empty sum",
        "spread": "max l − min l ≤ δ",
    },
    steps=steps,
)
