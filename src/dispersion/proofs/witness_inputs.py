"""The witness: inputs that reach a spread and a coefficient, with the query's own key counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion import symbolic
from dispersion.proofs.steps import Step, Theorem, at_most, at_most_from_zero, equal
from dispersion.proofs.symbols import d, h, m, x
from dispersion.proofs.vectors import dot, square, vectors

if TYPE_CHECKING:
    from collections.abc import Iterator

n = sp.Symbol("n", integer=True, positive=True)
own = sp.Symbol("g", nonnegative=True)  # how far the own key lies above the bottom
size = sp.Symbol("‖y‖", positive=True)


def steps() -> Iterator[Step]:
    """Put the target at the best key, the others at the worst, and count the own key as it is."""
    q, y, v, c = vectors("q y v c")
    yield equal(
        "A key's logit is linear in its input, the constant apart",
        dot(q, v + c),
        dot(q, v) + dot(q, c),
        why="With RCv and Rc for v and c: l = ⟨q, R(Cv + c)⟩ = ⟨y, v⟩ + ⟨q, Rc⟩, y = CᵀRᵀq at the "
        "key's own lag.",
    )
    yield equal(
        "By Cauchy–Schwarz no input of norm at most 1 does better than ±y/‖y‖",
        square(y) * (square(y) * square(v) - dot(y, v) ** 2),
        square(square(y) * v - dot(y, v) * y),
        why="|⟨y,v⟩| ≤ ‖y‖ where ‖v‖ ≤ 1.",
    )
    best = y / size
    unit = {square(y): size**2}
    yield equal("The best key gets", dot(y, best), size, where=unit)
    yield equal("the worst one", dot(y, -best), -size, where=unit)
    yield equal("and both are in the unit ball", square(best), 1, where=unit)
    count = symbolic.softmax_coefficient(x, [(x - d, n - 2), (x - d + own, 1)])
    yield equal(
        "One target at x, n−2 others δ lower, the own key g above these: the coefficient is",
        sp.exp(x) / (sp.exp(x) + (n - 2) * sp.exp(x - d) + sp.exp(x - d + own)),
        count,
        why="At different lags the others have different logits; then the sum has one term for "
        "each.",
    )
    yield equal(
        "It reaches the ceiling of T1 if the own key is at the bottom",
        count.subs(own, 0),
        symbolic.max_coefficient(n, d),
    )
    yield at_most_from_zero(
        "and stays below it otherwise: a witness never exceeds its certificate",
        count.subs(n, m + 2),
        symbolic.max_coefficient(m + 2, d),
        own,
    )
    low = symbolic.softmax_coefficient(x, [(x - d, n - 1)])
    yield at_most(
        "Logits that are enclosed give an enclosed coefficient: a larger sum of others gives less",
        1 / (1 / low + h),
        low,
        where={n: m + 1},
        why="So the target at its lower end and the others at their upper ends give the lower end.",
    )


THEOREM = Theorem(
    name="witness",
    title="explicit inputs",
    statement="For a query input u the target key y/‖y‖ and the other keys −y/‖y‖, y = CᵀR_ΔᵀQ "
    "with Q = Au + a at each key's own lag Δ, have the largest and the least logits that norms "
    "allow. With the own key counted at its own value the row has the coefficient "
    "1/(1+Σ e^(l_j − l_target)), a lower bound on the head's largest.",
    formula=sp.Ge(
        sp.Symbol("α_max"),
        symbolic.softmax_coefficient(x, [(x - d, n - 2), (x - d + own, 1)]),
        evaluate=False,
    ),
    hypotheses={
        "norms": "‖u‖, ‖v_j‖ ≤ 1 and any such inputs are possible",
        "own key": "the query token is one of its keys, with input u at lag 0",
    },
    steps=steps,
)
