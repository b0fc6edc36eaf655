"""T13: the capacity of a head, from its whole spectrum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion import symbolic
from dispersion.proofs.steps import Step, Theorem, at_most, equal
from dispersion.proofs.symbols import h
from dispersion.proofs.vectors import dot, square, vectors

if TYPE_CHECKING:
    from collections.abc import Iterator

k = sp.Symbol("κ", positive=True)
t = sp.Symbol("t", positive=True)
g = sp.Symbol("g", positive=True)
x, y, z = sp.symbols("x y z", real=True)
s = sp.Symbol("s", nonnegative=True)
tau = sp.Symbol("τ", positive=True)
dim = sp.Symbol("d", integer=True, positive=True)
i, above = sp.symbols("i r", integer=True, positive=True)  # r singular values exceed t
ALL = sp.IndexedBase("κ")
TERM = symbolic.log_capacity_at(t, [k]) - t
PULL = symbolic.water_pull(t, [k])


def steps() -> Iterator[Step]:
    """Odds to a Gaussian energy, and the energy to a test measure."""
    yield from _to_energy()
    yield from _energy()
    yield from _potential()
    yield from _minimum()


def _to_energy() -> Iterator[Step]:
    yield equal(
        "The mean of 1/α over the context is a double sum over keys",
        sp.exp(y) / sp.exp(x),
        sp.exp(y - x),
        why="1/α_i = Σ_j e^(l_ij − l_ii), so (1/n)Σ_i 1/α_i = (1/n)Σ_ij e^(l_ij − l_ii).",
    )
    yield equal(
        "Pairs (i,j) and (j,i) together: arithmetic and geometric mean",
        sp.exp(x) + sp.exp(y) - 2 * sp.exp((x + y) / 2),
        (sp.exp(x / 2) - sp.exp(y / 2)) ** 2,
        why="x = l_ij − l_ii, y = l_ji − l_jj.",
    )
    ai, aj, bi, bj = vectors("a_i a_j b_i b_j")
    yield equal(
        "The exponent of the geometric mean is −½⟨a_i−a_j, b_i−b_j⟩",
        (dot(ai, bj) - dot(ai, bi) + dot(aj, bi) - dot(aj, bj)) / 2,
        -dot(ai - aj, bi - bj) / 2,
        why="With AᵀC = U·diag(κ)·Vᵀ take a = diag(κ)^½Uᵀu, b = diag(κ)^½Vᵀv: l_ij = ⟨a_i, b_j⟩ "
        "and both lie in the ellipsoid E = {Σ x_r²/κ_r ≤ 1}. Biases cancel from the differences.",
    )
    u, v = vectors("x y")
    half = sp.Rational(1, 2)
    yield equal(
        "An inner product is at most the square of the midpoint",
        square(half * (u + v)) - dot(u, v),
        square(u - v) / 4,
        why="x = a_i−a_j and y = b_i−b_j: (x+y)/2 = m_i − m_j with m = (a+b)/2.",
    )
    yield equal(
        "Midpoints stay in the ellipsoid, as in any ball of a norm",
        square(u) / 2 + square(v) / 2 - square(half * (u + v)),
        square(u - v) / 4,
        why="In the norm whose unit ball is E. So (1/n)Σ 1/α_i ≥ (1/n)Σ_ij e^(−½‖m_i−m_j‖²) with "
        "all m_i in E: n times the Gaussian energy of the uniform measure on the m_i.",
    )


def _energy() -> Iterator[Step]:
    yield equal(
        "The Gaussian kernel is an inner product of functions: in one coordinate",
        sp.Integral(sp.exp(-((x - z) ** 2) - (y - z) ** 2), (z, -sp.oo, sp.oo)),
        sp.sqrt(sp.pi / 2) * sp.exp(-((x - y) ** 2) / 2),
        why="So the energy of measures μ, ν is ⟨F_μ, F_ν⟩ in L², F_μ(z) = ∫ e^(−‖x−z‖²)dμ(x), up "
        "to a constant; over several coordinates the integrals multiply.",
    )
    f, w = vectors("F G")
    yield equal(
        "Cauchy–Schwarz there: ⟨F,F⟩ ≥ ⟨F,G⟩²/⟨G,G⟩",
        square(w) * (square(f) * square(w) - dot(f, w) ** 2),
        square(square(w) * f - dot(f, w) * w),
        why="F for the points m_i, G for a test measure: the energy of the m_i is at least (the "
        "least potential of the test measure on E)² / (its energy). The test measure is Gaussian, "
        "N(0, diag s).",
    )
    spread = sp.Symbol("s", positive=True)
    yield equal(
        "Its potential at x, in one coordinate of variance s",
        sp.Integral(
            sp.exp(-((x - z) ** 2) / 2 - z**2 / (2 * spread)) / sp.sqrt(2 * sp.pi * spread),
            (z, -sp.oo, sp.oo),
        ),
        sp.exp(-(x**2) / (2 * (1 + spread))) / sp.sqrt(1 + spread),
        why="At s = 0 it is a point mass and the formula holds too.",
    )
    yield equal(
        "Its energy: two independent points differ by N(0, 2s)",
        sp.Integral(
            sp.exp(-(z**2) / 2 - z**2 / (4 * spread)) / sp.sqrt(4 * sp.pi * spread),
            (z, -sp.oo, sp.oo),
        ),
        1 / sp.sqrt(1 + 2 * spread),
    )


def _potential() -> Iterator[Step]:
    yield equal(
        "Choose s = κ/t − 1 where κ > t: the exponent becomes",
        x**2 / (1 + s),
        t * x**2 / k,
        where={s: k / t - 1},
    )
    yield at_most(
        "and s = 0 where κ ≤ t: it is at most the same",
        x**2,
        t * x**2 / k,
        where={t: k + h},
        why="So on E the exponents sum to at most t·Σ x²/κ ≤ t, and the potential is at least "
        "e^(−t/2)·Π(1+s)^(−½).",
    )
    yield equal(
        "What a coordinate with κ > t adds to log N = log(energy / least potential²) − t",
        sp.log(1 / sp.sqrt(1 + 2 * (k / t - 1))) + sp.log(1 + (k / t - 1)),
        TERM,
        where={k: t + g},
        why="One with κ ≤ t adds nothing. Hence (1/n)Σ 1/α_i ≥ n/N: the harmonic mean of the α_i "
        "is at most N/n, and the least α_i too, for every t > 0.",
    )
    yield equal(
        "At t = κ_1 every term is gone, the last one because it vanishes there: N ≤ e^κ_1",
        sp.Limit(symbolic.log_capacity_at(t, [k]), k, t),
        t,
        why="Restricted to the tokens that get p or more, n·p ≤ N: in any context at most N/p can, "
        "since dropping keys or sinks only raises coefficients.",
    )


def _minimum() -> Iterator[Step]:
    yield equal(
        "In t the objective t + Σ has the slope (t − Σ(κ−t)/(2κ−t))/t",
        sp.Derivative(symbolic.log_capacity_at(t, [k]), t),
        (t - PULL) / t,
        why="Terms add up, one is shown. A term and its slope vanish at κ = t, so the objective is "
        "smooth where κ enters or leaves.",
    )
    yield equal(
        "and every (κ−t)/(2κ−t) falls with t",
        sp.Derivative(PULL, t),
        -k / (2 * k - t) ** 2,
        why="So t − Σ grows: its root is unique, and it is the minimiser.",
    )
    yield at_most(
        "Larger singular values give a larger bound at every t",
        0,
        sp.Derivative(TERM, k),
        where={k: t + g},
        why="So upper bounds on all κ certify it.",
    )
    level = k + dim / 2 - sp.sqrt(k**2 + dim**2 / sp.Integer(4))
    yield equal(
        "d equal singular values: the root is κ + d/2 − √(κ²+d²/4)",
        (t * (2 * k - t) - dim * (k - t)).subs(t, level),
        0,
        why="t = d(κ−t)/(2κ−t), multiplied by 2κ−t.",
    )
    e = sp.Symbol("δ", nonnegative=True)
    yield equal(
        "The logarithm's argument is 1 + (κ−t)²/(t(2κ−t)), so no term is negative",
        (k / t) ** 2 / (2 * k / t - 1),
        1 + e**2 / (t * (t + 2 * e)),
        where={k: t + e},
    )


THEOREM = Theorem(
    name="T13",
    title="capacity",
    statement="Let κ_1 ≥ κ_2 ≥ … be the singular values of AᵀC. In a context of n keys common to n "
    "queries, one for each key, min_i α_i(q_i) ≤ N/n, log N = min over t > 0 of t + ½ Σ_{κ > t} "
    "log((κ/t)²/(2κ/t−1)). So in any context, however long, at most N/p tokens can get a "
    "coefficient p each. The minimiser is the root of t = Σ_{κ > t} (κ−t)/(2κ−t).",
    formula=sp.Le(
        sp.Symbol("log N"),
        t + sp.Sum(symbolic.log_capacity_at(t, [ALL[i]]) - t, (i, 1, above)),
        evaluate=False,
    ),
    hypotheses={
        "context": "n ≥ 1 keys k_i = Cv_i + c, visible to all queries q_i = Au_i + a; the own key "
        "of a query is not one of them",
        "norms": "‖u_i‖, ‖v_i‖ ≤ 1",
        "logits": "l_ij = ⟨q_i, k_j⟩ without rotation or cap; with rotation see the cover",
    },
    steps=steps,
)
