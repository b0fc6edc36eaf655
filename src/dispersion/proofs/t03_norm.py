"""T3′: rows whose centred logits are bounded in 2-norm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion import symbolic
from dispersion.proofs import least_entropy
from dispersion.proofs.steps import Step, Theorem, at_most_from_zero, equal
from dispersion.proofs.symbols import h
from dispersion.proofs.vectors import dot, square, vectors

if TYPE_CHECKING:
    from collections.abc import Iterator

n = sp.Symbol("n", integer=True, positive=True)
r = sp.Symbol("r", integer=True, positive=True)  # n − 1, the other items
norm = sp.Symbol("σ", nonnegative=True)
top = sp.Symbol("a", nonnegative=True)  # the centred logit of one item
s = sp.Symbol("s", real=True)  # sum of the others
c = sp.Symbol("c", real=True)
t = sp.Symbol("t", nonnegative=True)
j = sp.Symbol("j", integer=True, positive=True)
CEILING = symbolic.norm_max_coefficient(n, norm)
FLOOR = symbolic.norm_min_entropy(n, norm)


def steps() -> Iterator[Step]:
    """The ceiling, the row that attains it, and that no row has a lower entropy."""
    yield from _ceiling()
    yield from _row()
    yield from least_entropy.steps()


def _ceiling() -> Iterator[Step]:
    """Jensen for the others, Cauchy–Schwarz for the item itself."""
    yield at_most_from_zero(
        "e^x lies above its tangent at c, to the right of c",
        sp.exp(c) * (1 + t),
        sp.exp(c + t),
        t,
        2,
        why="x = c + t.",
    )
    yield at_most_from_zero(
        "and to the left of c", sp.exp(c) * (1 - t), sp.exp(c - t), t, 2, why="x = c − t."
    )
    yield equal(
        "Summed over the r = n−1 others at c, their mean, the linear term vanishes",
        sp.Sum(sp.exp(c) * (1 - c), (j, 1, r)) + sp.exp(c) * r * c,
        r * sp.exp(c),
        why="So Σ_{j≠i} e^(l_j) ≥ r·e^c, with c = −a/r because the row is centred and the item "
        "itself is at a.",
    )
    others, ones = vectors("l 1")
    yield equal(
        "The squares of the others sum to a²/r at least: the excess is a sum of squares",
        square(others) - s**2 / r,
        square(others - s / r * ones),
        where={dot(others, ones): s, square(ones): r},
        why="Cauchy–Schwarz. l holds the others, 1 is the vector of r ones, s = ⟨l,1⟩ = −a.",
    )
    yield equal(
        "Hence a² + a²/r ≤ σ²: a is at most σ√((n−1)/n), where",
        (top**2 + top**2 / r).subs(top, norm * sp.sqrt(r / (r + 1))),
        norm**2,
    )
    yield at_most_from_zero(
        "The coefficient 1/(1+r·e^(−a−a/r)) grows with a",
        1 / (1 + r * sp.exp(-(top + top / r))),
        1 / (1 + r * sp.exp(-(top + top / r) - h)),
        h,
    )
    yield equal(
        "At the largest a it is the ceiling",
        (1 / (1 + r * sp.exp(-(top + top / r)))).subs(top, norm * sp.sqrt(r / (r + 1))),
        CEILING.subs(n, r + 1),
    )


def _row() -> Iterator[Step]:
    """One item up, the rest level."""
    up, down = norm * sp.sqrt(r / (r + 1)), -norm / sp.sqrt(r * (r + 1))
    yield equal(
        "The row with one item up and the rest level is centred",
        sp.Add(up, sp.Mul(r, down, evaluate=False), evaluate=False),
        0,
    )
    yield equal("has the norm σ", up**2 + r * down**2, norm**2)
    yield equal("and the spread σ√(n/(n−1))", up - down, symbolic.norm_spread(r + 1, norm))
    yield equal(
        "so it attains the ceiling, which is T1 at that spread",
        CEILING.subs(n, r + 1),
        symbolic.max_coefficient(r + 1, up - down),
    )
    yield equal(
        "Its entropy is H_1 of T3 at that spread: the floor of T3′",
        symbolic.two_level_entropy(1, r + 1, up - down),
        FLOOR.subs(n, r + 1),
        why="Here one item at the top, k = 1, is the minimiser.",
    )


THEOREM = Theorem(
    name="T3′",
    title="rows bounded in 2-norm",
    statement="If the centred logits have 2-norm at most σ then, with b = e^(−σ√(n/(n−1))), "
    "α_max ≤ 1/(1+(n−1)b) and H ≥ log(1+(n−1)b) + σ√(n(n−1))·b/(1+(n−1)b). One row attains both.",
    formula=sp.Le(sp.Symbol("α_i"), CEILING, evaluate=False),
    hypotheses={
        "row": "n ≥ 2 unmasked items with real logits l",
        "norm": "‖l − mean(l)‖ ≤ σ; logits are centred below, which changes no coefficient",
    },
    steps=steps,
)
