"""T3: the least entropy of a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion import symbolic
from dispersion.proofs.steps import Step, Theorem, at_most, at_most_from_zero, equal
from dispersion.proofs.symbols import h, m, n

if TYPE_CHECKING:
    from collections.abc import Iterator

d = sp.Symbol("δ", positive=True)
k = sp.Symbol("k", positive=True)  # items at the top; real where it is varied
q = sp.Symbol("q", positive=True)  # items at the bottom
w = sp.Symbol("w", positive=True)  # the weight e^l that is varied
A = sp.Symbol("A", positive=True)  # sum of the other weights
B = sp.Symbol("B", real=True)  # sum of w_j·log w_j over the others
E = sp.exp(d)
D = d * E / (E - 1)
H_K = symbolic.two_level_entropy(k, n, d)
TURN = symbolic.turning_point(n, d)


def steps() -> Iterator[Step]:
    """Push one weight after the other to an end, then find the best number at the top."""
    entropy = sp.log(w + A) - (B + w * sp.log(w)) / (w + A)
    yield equal(
        "With all weights but one fixed, the entropy has the slope",
        sp.Derivative(entropy, w),
        (B - A * sp.log(w)) / (w + A) ** 2,
        why="For weights w_j = e^(l_j) in [1, e^δ], after a shift of all logits, "
        "H = log Σw − Σ w log w / Σw. A and B gather the others.",
    )
    yield equal(
        "whose numerator falls as w grows",
        sp.Derivative(B - A * sp.log(w), w),
        -A / w,
        why="So H rises, then falls: on [1, e^δ] it is least at an end. One after the other all "
        "n weights move to 1 or e^δ and H never grows; finitely many moves, no limit is taken.",
    )
    z = k * E + q
    yield equal(
        "With k weights e^δ and q weights 1 the entropy is H_k",
        sp.log(z) - k * d * E / z,
        symbolic.two_level_entropy(k, k + q, d),
        why="n = k + q. So H is at least the least H_k over k = 0..n; H_0 = H_n = log n.",
    )
    yield equal(
        "H_k falls as the spread grows",
        sp.Derivative(symbolic.two_level_entropy(k, k + q, d), d),
        -d * (q * sp.exp(-d) / k) / (1 + q * sp.exp(-d) / k) ** 2,
        why="Hence a smaller spread has the higher floor, and every H_k is at most its value at "
        "δ = 0, where",
    )
    yield equal(
        "all n items are level",
        symbolic.two_level_entropy(k, n, sp.Integer(0)),
        sp.log(n),
        why="So k = 0 and k = n are never better than k = 1..n−1, and for n ≥ 2 they can be left "
        "out. H_k is attained by its own row, so the least of them is the exact floor.",
    )
    z = k * (E - 1) + n
    yield equal(
        "In real k the slope of H_k is",
        sp.Derivative(H_K, k),
        ((E - 1) * z - n * d * E) / z**2,
        why="z = k(e^δ−1) + n is the sum of the weights.",
    )
    yield equal(
        "whose numerator grows with k at the rate",
        sp.Derivative((E - 1) * z - n * d * E, k),
        (E - 1) ** 2,
        why="So H_k falls, then rises: one turning point, and the least H_k over whole k is next "
        "to it, at its floor or its ceiling.",
    )
    yield equal(
        "The turning point is k* = n(D−1)/(e^δ−1), D = δe^δ/(e^δ−1)",
        ((E - 1) * z - n * d * E).subs(k, TURN),
        0,
    )
    yield at_most_from_zero(
        "It is positive, since D ≥ 1",
        E - 1,
        d * E,
        d,
        2,
        why="Multiplied by e^δ − 1 > 0.",
    )
    yield equal(
        "k* ≤ n/2 says 2(D−1) ≤ e^δ−1; multiplied by e^δ−1, the difference of the sides is",
        (E - 1) ** 2 - 2 * (d * E - (E - 1)),
        E * (E - 1 / E - 2 * d),
    )
    yield at_most_from_zero(
        "which is not negative",
        2 * d,
        E - 1 / E,
        d,
        3,
        why="So k = 1 is not always best, but more than half of the items at the top never are.",
    )
    yield equal(
        "The value at the turning point is the closed floor",
        (sp.log(z) - k * d * E / z).subs(k, TURN),
        symbolic.closed_min_entropy(n, d),
        why="The least over whole k is no smaller than the least over real k, so the closed floor "
        "holds for every n. Both forms of D agree: δe^δ/(e^δ−1) = δ/(1−e^−δ).",
    )
    yield at_most(
        "No entropy is negative",
        0,
        symbolic.two_level_entropy(1 + h, 2 + h + m, d),
        why="k = 1 + h, n − k = 1 + m: every term of H_k is nonnegative.",
    )


THEOREM = Theorem(
    name="T3",
    title="entropy floor",
    statement="The entropy of a row of n ≥ 2 items is at least the least H_k over k = 1..n−1, the "
    "entropy of k items at the top and n−k at the bottom; attained. In real k, H_k falls, then "
    "rises, with its minimum at k* = n(D−1)/(e^δ−1); and H ≥ log n − (D − 1 − log D) for every n, "
    "D = δ/(1−e^−δ).",
    formula=sp.Ge(sp.Symbol("H"), sp.Symbol("min_k H_k"), evaluate=False),
    hypotheses={
        "row": "n ≥ 2 unmasked items with real logits; natural logarithms",
        "spread": "max l − min l ≤ δ, δ > 0 (at δ = 0 the entropy is log n)",
    },
    steps=steps,
)
