"""T9: the spread of a head without rotation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion.proofs.steps import Step, Theorem, at_most, equal
from dispersion.proofs.vectors import dot, square, vectors

if TYPE_CHECKING:
    from collections.abc import Iterator

x, y = vectors("x y")
v, w = vectors("v w")
s = sp.Symbol("s", nonnegative=True)  # one singular value of M
t = sp.Symbol("t", positive=True)  # by how much λ exceeds its square
u, mi = sp.symbols("u m", real=True)  # one coordinate of the input and of Cᵀa
lam = sp.Symbol("λ", positive=True)
size, largest = sp.symbols("‖q‖ σ_k", nonnegative=True)
h, g = sp.symbols("h g", nonnegative=True)


def steps() -> Iterator[Step]:
    """Logits of two keys differ by an inner product with Cᵀq, whatever the key bias."""
    q, cv, cw, c = vectors("q Cv Cw c")
    yield equal(
        "The key bias c cancels from the difference of two logits",
        dot(q, cv + c) - dot(q, cw + c),
        dot(q, cv - cw),
        why="Keys are Cv + c and Cw + c. The right side is ⟨Cᵀq, v − w⟩.",
    )
    yield equal(
        "Two inputs of norm at most 1 are at most 2 apart",
        2 * square(v) + 2 * square(w) - square(v - w),
        square(v + w),
        why="So ‖v−w‖² ≤ 2‖v‖² + 2‖w‖² ≤ 4.",
    )
    yield equal(
        "Cauchy–Schwarz: the excess, times ‖y‖², is a square",
        square(y) * (square(x) * square(y) - dot(x, y) ** 2),
        square(square(y) * x - dot(x, y) * y),
        why="So ⟨x,y⟩² ≤ ‖x‖²‖y‖² where y ≠ 0, and trivially for y = 0. With x = Cᵀq and "
        "y = v − w a row spreads by at most 2‖Cᵀq‖, q = Au + a; its maximum over ‖u‖ ≤ 1 is δ_max.",
    )
    norm = sp.Symbol("‖x‖", positive=True)
    top = x / norm
    yield equal(
        "It is attained by the keys ±x/‖x‖: their logits differ by",
        dot(x, top) - dot(x, -top),
        2 * norm,
        where={square(x): norm**2},
        why="x = Cᵀq at the best query. In self-attention neither is the query's own key.",
    )
    yield equal("and they are in the unit ball", square(top), 1, where={square(x): norm**2})
    yield equal(
        "With a query bias, in the basis of singular vectors of M = CᵀA, coordinate by coordinate",
        lam * u**2 + mi**2 + (s * mi) ** 2 / (lam - s**2) - (s * u + mi) ** 2,
        (lam - s**2) * (u - s * mi / (lam - s**2)) ** 2,
        why="m is the coordinate of Cᵀa.",
    )
    yield at_most(
        "so every λ above all s² certifies",
        (s * u + mi) ** 2,
        lam * u**2 + mi**2 + (s * mi) ** 2 / (lam - s**2),
        where={lam: s**2 + t},
        why="Summed over coordinates with Σu² ≤ 1: ‖Mu+m‖² ≤ λ + ‖m‖² + mᵀM(λI−MᵀM)^-1 Mᵀm.",
    )
    yield equal(
        "and it is sharp where the input meets the secular equation",
        ((s * u + mi) ** 2).subs(u, s * mi / (lam - s**2)),
        (lam * u**2 + mi**2 + (s * mi) ** 2 / (lam - s**2)).subs(u, s * mi / (lam - s**2)),
        why="u = (λI−MᵀM)^-1 Mᵀm with ‖u‖ = 1. Where no λ > σ² gives that norm (the hard case) "
        "the bound is an infimum over λ.",
    )
    order, r = sp.symbols("d r", integer=True, positive=True)
    left, a = sp.MatrixSymbol("L", order, order), sp.MatrixSymbol("A", order, r)
    gram = sp.MatrixSymbol("G", order, order)
    product = sp.MatMul(left.T, a)
    yield equal(
        "Never a matrix of the model's width: with G = CCᵀ = LLᵀ",
        sp.Trace(a.T * gram * a),
        sp.Trace(sp.MatMul(sp.Transpose(product), product)),
        where={gram: left * left.T},
        why="By associativity AᵀCCᵀA = XᵀX, X = LᵀA, not only its trace. So ‖CᵀAu‖ = ‖Xu‖ for all "
        "u and σ_max(AᵀC) = σ_max(X); a matrix and its transpose have the same norm, so the square "
        "is λ_max(LᵀAAᵀL). For a = 0 the spread is 2σ_max(AᵀC).",
    )
    yield at_most(
        "The published product bound is looser",
        size * largest,
        (size + h) * (largest + g),
        why="Norms multiply: ‖Cᵀq‖ ≤ σ_max(C)‖q‖, and both factors are bounded with slack h and g.",
    )


THEOREM = Theorem(
    name="T9",
    title="spread of a head without rotation",
    statement="For queries q = Au + a and keys k = Cv + c with ‖u‖, ‖v‖ ≤ 1 the largest spread of "
    "a row is 2·max‖Cᵀ(Au+a)‖; the key bias c cancels. For a = 0 it is 2σ_max(AᵀC). It is "
    "attained by two opposite keys. Every λ > σ_max(M)² certifies max‖Mu+m‖² ≤ λ + ‖m‖² + "
    "mᵀM(λI−MᵀM)^-1 Mᵀm, M = CᵀA, m = Cᵀa.",
    formula=sp.Eq(
        sp.Symbol("δ_max"), 2 * sp.Symbol("max ‖Cᵀ(Au+a)‖", positive=True), evaluate=False
    ),
    hypotheses={
        "logits": "l = ⟨q, k⟩ without rotation or cap; the logit scale is part of A",
        "norms": "inputs of queries and keys fill unit balls",
        "keys": "two keys other than the query's own, for attainment",
    },
    steps=steps,
)
