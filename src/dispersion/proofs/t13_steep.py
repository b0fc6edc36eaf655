"""T13″: a ceiling from the second singular value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion import symbolic
from dispersion.proofs.steps import Step, Theorem, at_most, at_most_from_zero, equal, tends
from dispersion.proofs.symbols import h
from dispersion.proofs.vectors import square, vectors

if TYPE_CHECKING:
    from collections.abc import Iterator

one, two, kappa = sp.symbols("κ_1 κ_2 κ_r", nonnegative=True)
u, gap = sp.symbols("u_1 g", nonnegative=True)
near = sp.Symbol("a", integer=True, nonnegative=True)  # ⌈n/2⌉ − 1
more = sp.Symbol("e", integer=True, nonnegative=True)
half = sp.Symbol("j", integer=True, positive=True)
rest = sp.Symbol("R", nonnegative=True)
a, b = sp.symbols("u_r w_r", real=True)


def steps() -> Iterator[Step]:
    """For the query of the median key, half of the keys can hardly fall behind."""
    yield at_most(
        "Keys beyond the median in the query's first direction gain there",
        0,
        one * u * gap,
        why="Sort the keys by the first coordinate of v. l_ij − l_ii = κ_1·u_1·(v_j1 − v_i1) + the "
        "other coordinates. On the side to which u_1 points the first term is not negative. "
        "The median key, number ⌈n/2⌉, has ⌈n/2⌉−1 keys on one side and ⌊n/2⌋ on the other.",
    )
    excess = kappa * (a + b / 2) ** 2 + (two - kappa) * (a**2 + b**2 / 4)
    yield equal(
        "In each other coordinate κ_r·u_r·w_r, w = v_j − v_i, exceeds −κ_2(u_r² + w_r²/4) by",
        kappa * a * b + two * (a**2 + b**2 / 4),
        excess,
    )
    yield at_most("which is not negative, as κ_r ≤ κ_2", 0, excess, where={two: kappa + h})
    v, w = vectors("v_i v_j")
    yield equal(
        "The squares of w sum to 4 at most",
        2 * square(v) + 2 * square(w) - square(v - w),
        square(v + w),
        why="So these keys fall behind by at most κ_2(1 + 4/4) = 2κ_2 and, by the same argument in "
        "all coordinates, any key by at most 2κ_1.",
    )
    yield equal(
        "If the favoured side is the larger one, the sum of terms exceeds that of the smaller by",
        (near + more) * sp.exp(-2 * two)
        + near * sp.exp(-2 * one)
        - (near * sp.exp(-2 * two) + (near + more) * sp.exp(-2 * one)),
        more * (sp.exp(-2 * two) - sp.exp(-2 * one)),
        why="a = ⌈n/2⌉−1, a + e = ⌊n/2⌋.",
    )
    yield at_most_from_zero(
        "which is not negative, κ_1 = κ_2 + h",
        sp.exp(-2 * h),
        1,
        h,
        why="So a keys at 2κ_2 and ⌊n/2⌋ at 2κ_1 is the worst case.",
    )
    low = near * sp.exp(-2 * two) + (near + more) * sp.exp(-2 * one)
    yield at_most(
        "The ceiling: R exceeds these terms by some h ≥ 0",
        1 / (1 + low + h),
        1 / (1 + low),
    )
    x = sp.Symbol("x", real=True)
    for name, count in (("even", 2 * half), ("odd", 2 * half + 1)):
        side = sp.ceiling(sp.Rational(1, 2) * count, evaluate=False) - 1
        yield equal(
            f"Number of keys on the smaller side, n {name}",
            side,
            count - 1 - half,
            why="⌊n/2⌋ = j.",
        )
        yield equal(
            f"and the ceiling as the toolkit has it, n {name}",
            sp.exp(x)
            / (sp.exp(x) + (count - 1 - half) * sp.exp(x - 2 * two) + half * sp.exp(x - 2 * one)),
            symbolic.steep_ceiling(count, two, one),
        )
    ends = sp.exp(one) / (half * sp.exp(one) + half * sp.exp(-one))
    yield equal(
        "Rank one attains it: half of the keys at each end of the segment, n even",
        ends,
        symbolic.steep_ceiling(2 * half, 0, one),
        why="Query and keys at ±1 in the first direction.",
    )
    yield tends(
        "Without the far keys it is 1/⌈n/2⌉, which rank one reaches in the limit",
        ends,
        one,
        sp.oo,
        symbolic.steep_ceiling(2 * half, 0),
    )


THEOREM = Theorem(
    name="T13″",
    title="steep spectrum",
    statement="In a context of n keys common to n queries, one for each key, min_i α_i(q_i) ≤ "
    "1/(1+(⌈n/2⌉−1)e^(−2κ_2)+⌊n/2⌋e^(−2κ_1)), attained for rank one; the last term may be "
    "left out.",
    formula=sp.Le(
        sp.Symbol("min_i α_i"),
        symbolic.steep_ceiling(sp.Symbol("n", integer=True, positive=True), two, one),
        evaluate=False,
    ),
    hypotheses={
        "context": "n ≥ 1 keys k_i = Cv_i + c, visible to all queries q_i = Au_i; no query bias, "
        "no rotation, no cap",
        "norms": "‖u_i‖, ‖v_i‖ ≤ 1; κ_1 ≥ κ_2 ≥ … are the singular values of AᵀC",
    },
    steps=steps,
)
