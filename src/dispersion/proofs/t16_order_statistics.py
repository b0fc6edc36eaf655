"""T16: ceilings from measured maxima, without a distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion.proofs.formulas import Named
from dispersion.proofs.steps import Step, Theorem, at_most, equal
from dispersion.proofs.symbols import h

if TYPE_CHECKING:
    from collections.abc import Iterator

a, b = sp.symbols("a b", integer=True, nonnegative=True)  # successes before and failures after
k, m = sp.symbols("k m", integer=True, positive=True)
e = sp.Symbol("ε", positive=True)
w = sp.Symbol("w", positive=True)  # odds, so that ε = w/(1+w) lies in (0, 1)
i = sp.Symbol("i", integer=True, positive=True)


def mass(total: sp.Expr, count: sp.Expr) -> sp.Expr:
    """P(Bin(total, ε) = count)."""
    ways = sp.gamma(total + 1) / sp.gamma(count + 1) / sp.gamma(total - count + 1)
    return ways * e**count * (1 - e) ** (total - count)


def steps() -> Iterator[Step]:
    """Count the documents beyond a quantile; then rank one more among them."""
    yield equal(
        "The chance that exactly j of m documents exceed a level grows with its tail ε at the rate",
        sp.Derivative(mass(a + b + 2, a + 1), e),
        (a + b + 2) * (mass(a + b + 1, a) - mass(a + b + 1, a + 1)),
        where={e: w / (1 + w)},
        why="j = a + 1 and m = a + b + 2 with a, b ≥ 0, 0 < ε < 1. Here j < m.",
    )
    yield equal(
        "and for j = m",
        sp.Derivative(mass(a + 1, a + 1), e),
        (a + 1) * mass(a, a),
        where={e: w / (1 + w)},
        why="By induction from m downwards: if P(Bin(m, ε) ≥ k+1) has the slope "
        "m·P(Bin(m−1, ε) = k), adding the term j = k gives m·P(Bin(m−1, ε) = k−1) for k.",
    )
    yield at_most(
        "That slope is not negative",
        0,
        (a + b + 1) * mass(a + b, a),
        where={e: w / (1 + w)},
        why="So it is increasing in ε: if each document reaches the (1−ε)-quantile with "
        "probability at least ε, independently, at least k of m do with probability at least "
        "P(Bin(m, ε) ≥ k). Then the k-th largest maximum reaches the quantile, and a new document "
        "stays at or below it with probability at least 1 − ε.",
    )
    yield equal(
        "The largest of m documents, k = 1: the confidence is",
        1 - Named("P(Bin(m, ε) = 0)", mass(m, sp.Integer(0))),
        1 - (1 - e) ** m,
    )
    yield equal(
        "Exchangeable documents: each of the m+1 ranks of the next one is equally likely",
        sp.Sum(1 / (m + 1), (i, 1, m + 1)),
        1,
        why="Ties are broken at random.",
    )
    yield equal(
        "It exceeds the k-th largest of the others only at a rank of at most k",
        sp.Sum(1 / (m + 1), (i, 1, k)),
        k / (m + 1),
        why="With ties the chance is smaller.",
    )
    yield at_most("More documents make that rarer", k / (m + 1 + h), k / (m + 1))


THEOREM = Theorem(
    name="T16",
    title="distribution-free ceilings",
    statement="For m independent documents of one distribution, the k-th largest maximum covers at "
    "least 1−ε of documents with confidence P(Bin(m, ε) ≥ k). If m+1 documents are exchangeable, "
    "the last exceeds the k-th largest of the others with probability at most k/(m+1).",
    formula=sp.Le(sp.Symbol("P(M_(m+1) > M_(k))"), k / (m + 1), evaluate=False),
    hypotheses={
        "independent": "for coverage: documents are independent draws of one distribution",
        "exchangeable": "for the next document: any order of the m+1 is equally likely",
        "unit": "the fraction is one of documents, not of rows; 1 ≤ k ≤ m",
    },
    steps=steps,
)
