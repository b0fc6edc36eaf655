"""T13′: the capacity of a flat spectrum, by the uniform measure on a sphere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion import symbolic
from dispersion.proofs.formulas import Named
from dispersion.proofs.steps import Step, Theorem, at_most, equal
from dispersion.proofs.symbols import h

if TYPE_CHECKING:
    from collections.abc import Iterator

d = sp.Symbol("d", integer=True, positive=True)
k, l = sp.symbols("k l", integer=True, nonnegative=True)  # noqa: E741 - indices of series
x = sp.Symbol("x", positive=True)
xi = sp.Symbol("ξ", real=True)
kappa = sp.Symbol("κ", positive=True)
radius, rho = sp.symbols("R ρ", positive=True)


def coefficient(index: sp.Expr) -> sp.Expr:
    """c_k of M(x) = Σ c_k x^(2k)."""
    half = sp.Rational(1, 2)
    return sp.gamma(d * half) / (4**index * sp.factorial(index) * sp.gamma(index + d * half))


def steps() -> Iterator[Step]:
    """The mean M of e^(xξ) over the sphere takes the place of the Gaussian integrals."""
    yield from _series()
    yield from _bounds()
    yield from _capacity()


def _series() -> Iterator[Step]:
    weight = (1 - xi**2) ** ((d - 3) / sp.Integer(2))
    inner = xi ** (2 * k + 1) * (1 - xi**2) ** ((d - 1) / sp.Integer(2))
    yield equal(
        "The first coordinate ξ of the unit sphere has density ∝ (1−ξ²)^((d−3)/2): its moments",
        sp.diff(inner, xi) / weight,
        (2 * k + 1) * xi ** (2 * k) - (2 * k + d) * xi ** (2 * k + 2),
        why="The left side is an exact slope over the density. Its integral over [−1,1] is 0, so "
        "E ξ^(2k+2) = (2k+1)/(2k+d)·E ξ^(2k) for d ≥ 2; odd moments vanish. For d = 1, ξ = ±1.",
    )
    yield equal(
        "So M(x) = E e^(xξ) = Σ c_k x^(2k), whose coefficients follow the same rule",
        coefficient(k + 1) / coefficient(k),
        (2 * k + 1) / (2 * k + d) / ((2 * k + 1) * (2 * k + 2)),
        why="c_0 = 1 and c_k = E ξ^(2k)/(2k)!, with c_k = Γ(d/2)/(4^k k! Γ(k+d/2)).",
    )
    yield equal("The first is 1", Named("c_0", coefficient(sp.Integer(0))), 1)
    nu = d / sp.Integer(2) - 1
    term = (x / 2) ** (2 * k + nu) / (sp.factorial(k) * sp.gamma(k + nu + 1))
    yield equal(
        "and M is Γ(d/2)(2/x)^(d/2−1) I_(d/2−1)(x), term by term",
        sp.gamma(d / sp.Integer(2)) * (2 / x) ** nu * term,
        coefficient(k) * x ** (2 * k),
        why="I_ν(x) = Σ (x/2)^(2k+ν)/(k! Γ(k+ν+1)) is the definition of the Bessel function.",
    )
    for size, known in ((1, sp.cosh(x)), (3, sp.sinh(x) / x)):
        yield equal(
            f"The toolkit's M at d = {size}",
            Named(f"sphere_mean({size}, x)", sp.besselsimp(symbolic.sphere_mean(size, x))),
            known,
        )


def _bounds() -> Iterator[Step]:
    yield equal(
        "Term by term M′(x) is x·M(x) with c_k/(2k+d) in place of c_k",
        2 * (k + 1) * coefficient(k + 1),
        coefficient(k) / (2 * k + d),
    )
    yield at_most(
        "so (log M)′(x) ≤ x/d",
        1 / (2 * k + d),
        1 / d,
        why="Integrated from 0: log M(κ) ≤ κ²/(2d), which is at most κ/2 for κ ≤ d.",
    )
    yield at_most(
        "for κ ≤ d",
        kappa**2 / (2 * d),
        kappa / 2,
        where={d: kappa + h},
    )
    first, second = 1 / (2 * k + d), 1 / (2 * l + d)
    yield at_most(
        "(log M)′(x)/x is a mean of 1/(2k+d) with weights c_k x^(2k), and falls as x grows",
        (first - second) * (k - l),
        0,
        why="The slope of such a mean in y = x² is 1/y times the covariance of 1/(2k+d) and k, "
        "half of the mean over pairs (k, l) of the product shown.",
    )


def _capacity() -> Iterator[Step]:
    a, b = sp.symbols("a b", real=True)
    energy, least = sp.symbols("W V", positive=True)
    yield equal(
        "On the sphere of radius R the kernel is",
        sp.exp(-(rho**2 - 2 * radius * rho * xi + radius**2) / 2),
        sp.exp(-(rho**2 + radius**2) / 2) * sp.exp(radius * rho * xi),
        why="‖x−z‖² for ‖x‖ = ρ, ‖z‖ = R. So the potential is e^(−(ρ²+R²)/2)·M(Rρ) and, at ρ = R, "
        "the energy e^(−R²)·M(R²). Its logarithm in ρ has the slope R·(log M)′(Rρ) − ρ, which is ρ "
        "times a falling function: it rises, then falls, and is least at ρ = 0 or ρ = √κ.",
    )
    yield equal(
        "Energy W over squared potential V² at ρ = 0",
        energy / least**2,
        sp.exp(a),
        where={
            energy: sp.exp(-(radius**2)) * sp.exp(a),
            least: sp.exp(-(radius**2) / 2),
        },
        why="a = log M(R²). All midpoints of T13 lie in the ball of radius √κ, since Σx²/κ ≤ "
        "Σx²/κ_r ≤ 1.",
    )
    yield equal(
        "and at ρ = √κ",
        energy / least**2,
        sp.exp(a + kappa - 2 * b),
        where={
            energy: sp.exp(-(radius**2)) * sp.exp(a),
            least: sp.exp(-(kappa + radius**2) / 2) * sp.exp(b),
        },
        why="b = log M(R√κ). As in T13, N is at most the larger of the two.",
    )
    log_mean = sp.Symbol("λ", nonnegative=True)
    yield at_most(
        "With R = √κ, a = b = log M(κ) ≤ κ/2: the second is the larger",
        log_mean,
        kappa - log_mean,
        where={kappa: 2 * log_mean + h},
    )
    yield equal(
        "and its logarithm is κ − a",
        sp.log(sp.exp(a + kappa - 2 * b)),
        kappa - a,
        where={b: a},
    )
    yield equal(
        "the bound as the toolkit has it",
        Named("flat_log_capacity(d, κ)", symbolic.flat_log_capacity(d, kappa)),
        kappa - sp.log(Named("M_d(κ)", symbolic.sphere_mean(d, kappa))),
    )
    yield equal(
        "For larger κ take R = r/√κ with log M(r) = κ/2: both are M(r²/κ)",
        sp.exp(a + kappa - 2 * b),
        sp.exp(a),
        where={b: kappa / 2},
        why="b = log M(R√κ) = log M(r), a = log M(R²) = log M(r²/κ).",
    )


THEOREM = Theorem(
    name="T13′",
    title="capacity of a flat spectrum",
    statement="If at most d singular values are not 0 and none exceeds κ ≤ d, then N ≤ e^κ/M_d(κ), "
    "M_d(κ) = Γ(d/2)(2/κ)^(d/2−1) I_(d/2−1)(κ). For any κ: N ≤ max(e^κ/M_d(κ), M_d(κ)), and "
    "N ≤ M_d(r²/κ) at the root r of log M_d(r) = κ/2.",
    formula=sp.Le(
        sp.Symbol("log N"), kappa - sp.log(sp.Symbol("M_d(κ)", positive=True)), evaluate=False
    ),
    hypotheses={
        "context": "that of T13",
        "spectrum": "κ_i ≤ κ for all i, at most d of them positive",
    },
    steps=steps,
    scope="That no bound N/n can be better as n → ∞ (keys spread evenly over the sphere reach it "
    "in the limit) is not derived.",
)
