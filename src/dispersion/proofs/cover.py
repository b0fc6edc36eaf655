"""The cover: a biased ball image lies in an ellipsoid, and rotations keep that ellipsoid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion.proofs.steps import Step, Theorem, at_most, equal
from dispersion.proofs.symbols import h
from dispersion.proofs.vectors import dot, vectors

if TYPE_CHECKING:
    from collections.abc import Iterator

a, b, t = sp.symbols("a b t", real=True)
odds = sp.Symbol("ω", positive=True)
w = odds / (1 + odds)  # a share in (0, 1)
tau, share = sp.symbols("τ w", positive=True)
angle = sp.Symbol("φ", real=True)
g1, g2, s = sp.symbols("G_1 G_2 s", nonnegative=True)


def steps() -> Iterator[Step]:
    """Split a square between the ball and the bias, then see what rotations do to it."""
    yield equal(
        "A square of a sum, shared out: a²/w + b²/(1−w) exceeds (a+b)² by a square",
        a**2 / share + b**2 / (1 - share) - (a + b) ** 2,
        ((1 - share) * a - share * b) ** 2 / (share * (1 - share)),
        where={share: w},
        why="a = ⟨x, Cv⟩ and b = ⟨x, c⟩ for any direction x; 0 < w < 1.",
    )
    yield at_most(
        "so ⟨x, Cv + c⟩² ≤ xᵀT x with T = CCᵀ/w + ccᵀ/(1−w)",
        (a + b) ** 2,
        a**2 / share + b**2 / (1 - share),
        where={share: w, b: a / odds + t},
        why="⟨x, Cv⟩² ≤ xᵀCCᵀx for ‖v‖ ≤ 1 (Cauchy–Schwarz). So the ellipsoid of T contains every "
        "key: T covers it. (Written with b = a/ω + t, t any real number.)",
    )
    x, k, r, c = vectors("x k r c")
    yield equal(
        "A bias on unrotated coordinates need not be covered: it cancels from differences",
        dot(x, k + c) - dot(x, r + c),
        dot(x, k - r),
    )
    turn = sp.Matrix([[sp.cos(angle), -sp.sin(angle)], [sp.sin(angle), sp.cos(angle)]])
    weights = sp.symbols("ω_0:4", real=True)
    turned = turn * (tau * sp.eye(2)) * turn.T
    yield equal(
        "Blocks τI on rotated pairs are the same after any rotation",
        sum(z * entry for z, entry in zip(weights, turned, strict=True)),
        sum(z * entry for z, entry in zip(weights, tau * sp.eye(2), strict=True)),
        why="So one cover holds at every position, and rotated keys are keys of a head without "
        "rotation that has T^½ for C: T12 and T13 apply with κ = singular values of AᵀT^½, for "
        "queries at one position.",
    )
    yield equal(
        "Gains of a pair, G_1 and G_2: the smallest block that covers diag(G_1², G_2²)",
        sp.Max(g1, g1 + s) ** 2 - g1**2,
        2 * g1 * s + s**2,
        why="τ is the larger of the squares, here G_2 = G_1 + s. So κ_j = √d·|g_q,j|·max of "
        "|g_k| over the pair.",
    )
    yield at_most("A larger cover has larger singular values", tau * a**2, (tau + h) * a**2)


THEOREM = Theorem(
    name="cover",
    title="biases and rotation",
    statement="For 0 < w < 1 the keys Cv + c, ‖v‖ ≤ 1, lie in the ellipsoid of T = CCᵀ/w + "
    "ccᵀ/(1−w). If T is τI on rotated pairs, so do the rotated keys, and T12 and T13 hold with the "
    "singular values of AᵀT^½. Biases on unrotated coordinates cancel.",
    formula=sp.Le((a + b) ** 2, a**2 / share + b**2 / (1 - share), evaluate=False),
    hypotheses={
        "keys": "k = R(Cv + c) with ‖v‖ ≤ 1, R turns pairs of coordinates",
        "queries": "all at one position, so that their rotation can be left out",
    },
    steps=steps,
)
