"""T12: no n tokens can all be found better than the corners of a simplex."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion import symbolic
from dispersion.proofs.steps import Step, Theorem, at_most, at_most_from_zero, equal
from dispersion.proofs.symbols import h
from dispersion.proofs.vectors import dot, square, vectors

if TYPE_CHECKING:
    from collections.abc import Iterator

n = sp.Symbol("n", integer=True, positive=True)
r = sp.Symbol("r", integer=True, positive=True)  # n − 1
s = sp.Symbol("σ", nonnegative=True)
c = sp.Symbol("c", real=True)
t = sp.Symbol("t", nonnegative=True)
total = sp.Symbol("S", real=True)
y = sp.Symbol("y", real=True)  # the mean of l_ij − l_ii over j ≠ i and i
j = sp.Symbol("j", integer=True, positive=True)
CEILING = symbolic.simplex_ceiling(n, s)


def steps() -> Iterator[Step]:
    """Linearise the exponential, then bound a sum of inner products."""
    yield at_most_from_zero(
        "e^x lies above its tangent at c, to the right of c",
        sp.exp(c) * (1 + t),
        sp.exp(c + t),
        t,
        2,
    )
    yield at_most_from_zero("and to the left of c", sp.exp(c) * (1 - t), sp.exp(c - t), t, 2)
    yield equal(
        "Averaged over the r = n−1 others and over all i, at c = −σn/(n−1) and mean y = c",
        1 + sp.Sum(sp.exp(c) * (1 + y - c), (j, 1, r)),
        1 / symbolic.simplex_ceiling(r + 1, s),
        where={y: -s * (r + 1) / r, c: -s * (r + 1) / r},
        why="1/α_i = 1 + Σ_{j≠i} e^(l_ij − l_ii). It remains to show y ≥ c: the left side grows "
        "with y, so then the mean of 1/α_i is at least 1/ceiling: some α_i is at most the ceiling.",
    )
    q, ki, mean = vectors("q_i k_i k̄")
    others = n * mean - ki
    yield equal(
        "The differences of one query's logits add up to an inner product with k_i − k̄",
        dot(q, others) - (n - 1) * dot(q, ki),
        -n * dot(q, ki - mean),
        why="k̄ is the mean of the keys and n·k̄ − k_i the sum of the others. Key biases cancel here "
        "and, averaged over i, so do query biases: Σ_i (k_i − k̄) = 0.",
    )
    u, v = vectors("u w")
    yield equal(
        "In the basis of singular vectors 2⟨u,w⟩ ≤ ‖u‖² + ‖w‖²",
        square(u) + square(v) - 2 * dot(u, v),
        square(u - v),
        why="w = v_i − v̄. So ⟨q_i, k_i − k̄⟩ ≤ σ(‖u_i‖² + ‖v_i − v̄‖²)/2 with the largest singular "
        "value σ: for the others replace σ by κ_r ≤ σ, coordinate by coordinate.",
    )
    a, b = sp.symbols("u_r w_r", real=True)
    kappa = sp.Symbol("κ_r", nonnegative=True)
    yield equal(
        "one coordinate: σ(u_r²+w_r²)/2 exceeds κ_r·u_r·w_r by",
        s * (a**2 + b**2) / 2 - kappa * a * b,
        kappa * (a - b) ** 2 / 2 + (s - kappa) * (a**2 + b**2) / 2,
    )
    yield at_most(
        "which is not negative",
        0,
        kappa * (a - b) ** 2 / 2 + (s - kappa) * (a**2 + b**2) / 2,
        where={s: kappa + h},
    )
    vi, vbar = vectors("v_i v̄")
    yield equal(
        "Centring lowers the sum of squares",
        square(vi) - 2 * dot(vi, vbar) + square(vbar),
        square(vi - vbar),
        why="Summed over i, Σ⟨v_i, v̄⟩ = n‖v̄‖², so Σ‖v_i−v̄‖² = Σ‖v_i‖² − n‖v̄‖² ≤ n. With "
        "‖u_i‖ ≤ 1 this gives Σ_i ⟨q_i, k_i−k̄⟩ ≤ σ(n + n)/2.",
    )
    yield equal(
        "Hence the mean of l_ij − l_ii over the n(n−1) pairs is at least c",
        -n * total / (n * (n - 1)),
        -s * n / (n - 1),
        where={total: s * (n + n) / 2},
        why="S is the sum of the inner products. This mean is y, and c is this bound.",
    )
    corner = sp.Symbol("ρ", real=True)
    regular = {corner: -1 / (n - 1)}
    yield equal(
        "Attained by a regular simplex: its corners have the product ρ = −1/(n−1), being centred",
        1 + (n - 1) * corner,
        0,
        where=regular,
    )
    yield equal(
        "With u_i = v_i and n−1 singular values σ every token gets the ceiling",
        1 / (1 + (n - 1) * sp.exp(s * corner - s)),
        CEILING,
        where=regular,
    )
    yield equal(
        "A Gram matrix with 1 on and ρ off the diagonal has the eigenvalue 1−ρ on n−1 dimensions",
        1 - corner,
        n / (n - 1),
        where=regular,
        why="Equality needs equality in every step: v̄ = 0, AᵀC acting as σ on all u_i and v_i, and "
        "all l_ij with j ≠ i equal. Then the v_i form this simplex, of rank n−1, so n−1 singular "
        "values must equal σ.",
    )


THEOREM = Theorem(
    name="T12",
    title="simplex",
    statement="In a context of n keys common to n queries, one for each key, "
    "min_i α_i(q_i) ≤ 1/(1+(n−1)e^(−σn/(n−1))), σ = σ_max(AᵀC). Attained if and only if n−1 "
    "singular values equal σ.",
    formula=sp.Le(sp.Symbol("min_i α_i"), CEILING, evaluate=False),
    hypotheses={
        "context": "n ≥ 2 keys k_i = Cv_i + c, visible to all queries q_i = Au_i + a; the own key "
        "of a query is not one of them",
        "norms": "‖u_i‖, ‖v_i‖ ≤ 1",
        "logits": "l_ij = ⟨q_i, k_j⟩ without rotation or cap; with rotation see the cover",
    },
    steps=steps,
)
