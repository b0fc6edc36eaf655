"""T10: the spread of a head with rotated coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion.proofs.formulas import Named
from dispersion.proofs.steps import Step, Theorem, at_most, equal
from dispersion.proofs.symbols import h
from dispersion.proofs.vectors import dot, square, vectors

if TYPE_CHECKING:
    from collections.abc import Iterator

a, b = sp.symbols("φ ψ", real=True)
s = sp.Symbol("s", positive=True)
x1, x2, y1, y2 = sp.symbols("x_1 x_2 y_1 y_2", real=True)
gq, gk, gain = sp.symbols("G_q G_k K", positive=True)


def rotation(angle: sp.Symbol) -> sp.Matrix:
    """The rotation of one pair of coordinates."""
    return sp.Matrix([[sp.cos(angle), -sp.sin(angle)], [sp.sin(angle), sp.cos(angle)]])


def entries(matrix: sp.Matrix) -> sp.Expr:
    """A generic linear form of the entries: zero for all weights only if every entry is."""
    weights = sp.symbols(f"ω_0:{len(matrix)}", real=True)
    return sum(w * e for w, e in zip(weights, matrix, strict=True))


def steps() -> Iterator[Step]:
    """Scales that commute with rotations can be put between query and key."""
    turn, back = rotation(a), rotation(b)
    x, y = sp.Matrix([x1, x2]), sp.Matrix([y1, y2])
    yield equal(
        "A multiple of the identity commutes with the rotation of a pair",
        Named("ω · sI·R_φ", entries(s * sp.eye(2) * turn)),
        Named("ω · R_φ·sI", entries(turn * s * sp.eye(2))),
        why="Entries are compared through arbitrary weights ω. On unrotated coordinates the "
        "rotation is the identity and any block commutes.",
    )
    yield equal("A rotation keeps norms", (turn * x).dot(turn * x), x.dot(x))
    yield equal(
        "Rotations of query and key act as one, by the lag",
        (turn * x).dot(back * y),
        x.dot(rotation(b - a) * y),
    )
    yield equal(
        "A scale on one side and its inverse on the other leave every logit alone",
        (turn * x).dot(back * y),
        (turn * (x / s)).dot(back * (s * y)),
        why="With a scale s for each pair. By Cauchy–Schwarz (T9) |l| ≤ ‖S^-1 q‖·‖Sk‖ "
        "for every choice of scales and all angles.",
    )
    q, k, r, c = vectors("q k r c")
    yield equal(
        "The part c of the key bias on unrotated coordinates cancels from a difference",
        dot(q, k + c) - dot(q, r + c),
        dot(q, k - r),
        why="Rotations leave it where it is, for k and r alike. The rotated part does not cancel.",
    )
    yield equal(
        "What is left of two keys, after rotation and scaling, is at most twice the largest apart",
        2 * square(k) + 2 * square(r) - square(k - r),
        square(k + r),
        why="So ‖k−r‖ ≤ 2·max‖S(Cv+c_rot)‖ and δ ≤ 2·max‖S^-1(Au+a)‖·max‖S(Cv+c_rot)‖.",
    )
    yield equal(
        "Gains only: with s = G_q/√K on each pair, K the largest G_q·G_k over pairs, queries reach",
        gq / s,
        sp.sqrt(gain),
        where={s: gq / sp.sqrt(gain)},
        why="G_q and G_k are the largest moduli of gains in the pair, and ‖S^-1 A‖ is the largest "
        "of G_q/s; both balls have radius ρ = √d. On unrotated coordinates a pair is one "
        "coordinate. Where G_q = 0 any small s will do.",
    )
    yield at_most(
        "and keys at most the same",
        gq / sp.sqrt(gain) * gk,
        sp.sqrt(gain),
        where={gain: gq * gk + h},
        why="K = G_q·G_k + h with h ≥ 0. So the bound is ρ²K times the logit scale.",
    )
    yield equal(
        "It is attained at the best pair: unit vectors along the largest gains, turned to align",
        (rotation(a) * sp.Matrix([gq, 0])).dot(rotation(a - sp.pi / 2) * sp.Matrix([0, gk])),
        gq * gk,
        why="Shown for gains that are largest in different coordinates; the angles are free.",
    )
    norm = sp.Symbol("‖x‖", positive=True)
    (v,) = vectors("x")
    top = v / norm
    yield equal(
        "From below, at real offsets: the key x/‖x‖ at the lag Δ has the logit h_Δ",
        dot(v, top),
        norm,
        where={square(v): norm**2},
        why="x = CᵀR_Δᵀ(Au+a), h_Δ = ‖x‖. The key −y/‖y‖ at another lag Δ′ has −h_Δ′, so "
        "δ_max ≥ h_Δ(u) + h_Δ′(u): one lag holds one key.",
    )
    project = sp.diag(1, 0)
    quarter = rotation(sp.pi / 2)
    query = project * x
    yield equal(
        "Twice the largest logit is not reached: for A = C = diag(1, 0), frequency π/2, lag 0",
        Named("h_0²", (project * query).dot(project * query)),
        x1**2,
        why="h_0 = |x_1| ≤ 1, so 2σ_max = 2.",
    )
    turned = project * quarter.T * query
    yield equal(
        "but at lag 1 nothing is left",
        Named("h_1²", turned.dot(turned)),
        0,
        why="Two keys, at lags 0 and 1, spread by 1 at most, not by 2.",
    )


THEOREM = Theorem(
    name="T10",
    title="spread of a head with rotation",
    statement="For every S that commutes with the rotations, |l| ≤ max‖S^-1(Au+a)‖·max‖S(Cv+c)‖ "
    "and δ ≤ 2·max‖S^-1(Au+a)‖·max‖S(Cv+c_rot)‖, c_rot the key bias on rotated coordinates. For "
    "gains only, sup|l| over free phases is scale·d times the largest product, over pairs, of the "
    "largest gains. At real offsets δ_max ≥ h_Δ(u) + h_Δ′(u) for Δ ≠ Δ′.",
    formula=sp.Le(
        sp.Symbol("δ"),
        2 * sp.Symbol("max ‖S^-1(Au+a)‖") * sp.Symbol("max ‖S(Cv+c_rot)‖"),
        evaluate=False,
    ),
    hypotheses={
        "logits": "l = ⟨R_t q, R_j k⟩, rotations act on pairs of coordinates",
        "scales": "S is s·I on each rotated pair, positive definite on unrotated coordinates, and "
        "has no cross blocks",
        "gains": "for the closed form: RMS norm of head width d with gains on both sides, no bias",
    },
    steps=steps,
    scope="How close the best S comes to the supremum over free phases is measured, not proved.",
)
