"""The part of T3′ that is about entropy: on a sphere of logits one item up is the least row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion.proofs.steps import Step, at_most, at_most_from_zero, equal
from dispersion.proofs.symbols import h, x

if TYPE_CHECKING:
    from collections.abc import Iterator

A = sp.Symbol("A", positive=True)  # sum of the other weights e^l
B = sp.Symbol("B", real=True)  # sum of l·e^l over the others
a, c = sp.symbols("a c", positive=True)  # how far the largest and the least logit are from a third
mean_of = sp.Symbol("L", real=True)  # Σ α l
s = sp.Symbol("s", positive=True)  # spread of a row with two values
k = sp.Symbol("k", integer=True, positive=True)  # items at the top
q = sp.Symbol("q", integer=True, positive=True)  # items at the bottom
t = sp.Symbol("t", real=True)


def steps() -> Iterator[Step]:
    """Lagrange multipliers leave two values; the second order leaves one item at the top."""
    yield from _two_values()
    yield from _one_item()


def _two_values() -> Iterator[Step]:
    """A row of least entropy has two values only."""
    weight = sp.exp(x)
    mean = (B + x * weight) / (A + weight)
    yield equal(
        "Now the entropy floor. In one logit x the entropy has the slope −α(x − L), L = Σ α l",
        sp.Derivative(sp.log(A + weight) - mean, x),
        -weight / (A + weight) * (x - mean),
        why="A sums the other weights and B their l·e^l. By T5 scaling a row up lowers H, so the "
        "least entropy sits on the sphere of radius σ > 0, which is compact. There, with Lagrange "
        "multipliers, α_i(l_i − L) = λ·l_i + μ for every i: the points (l_i, e^(l_i)(l_i − L)) lie "
        "on one line.",
    )
    right = (sp.exp(a) * (a - mean_of) + mean_of) / a
    left = (sp.exp(-c) * (c + mean_of) - mean_of) / c
    yield equal(
        "Suppose a third value between the largest and the least, put at 0, with the others at a "
        "and −c: the slopes to the right and to the left of it differ by something linear in L",
        sp.Derivative(right - left, (mean_of, 2)),
        0,
        why="−c < L < a, as L is a mean. So its sign follows from the two ends:",
    )
    yield equal(
        "at L = a the difference is",
        sp.Subs(right - left, mean_of, a),
        (1 - sp.exp(-c)) * (1 + a / c),
    )
    yield equal(
        "and at L = −c",
        sp.Subs(right - left, mean_of, -c),
        (sp.exp(a) - 1) * (1 + c / a),
    )
    yield at_most_from_zero(
        "Both are positive",
        h,
        sp.exp(h) - 1,
        h,
        2,
        why="For h = a, and for h = c as 1 − e^−c = e^−c(e^c − 1). So three values never lie on "
        "one line: a row of least entropy has k items at the top and n − k lower by some s > 0.",
    )


def _one_item() -> Iterator[Step]:
    """Of the two values the upper one is taken once."""
    top, bottom = sp.exp(s) / (k * sp.exp(s) + q), 1 / (k * sp.exp(s) + q)
    mean = k * top * s
    yield equal(
        "Their common multiplier, the slope of that line, is λ = n·α_top·α_bottom",
        (top * (s - mean) + bottom * mean) / s,
        (k + q) * top * bottom,
        why="The bottom is put at 0, L = k·α_top·s, q = n − k.",
    )
    pair = A + sp.exp(x + t) + sp.exp(x - t)
    level = (B + (x + t) * sp.exp(x + t) + (x - t) * sp.exp(x - t)) / pair
    share = sp.exp(x) / (A + 2 * sp.exp(x))
    yield equal(
        "If two items at x move apart by t each way, the entropy has the second slope −2α(x−L+1)",
        sp.Subs(sp.Derivative(sp.log(pair) - level, (t, 2)), t, 0),
        -2 * share * (x - (B + 2 * x * sp.exp(x)) / (A + 2 * sp.exp(x)) + 1),
        why="A and B gather the others. The move keeps Σl and adds 2t² to Σl². So at a minimum on "
        "the sphere (second order, along a tangent) λ ≥ α(x − L + 1).",
    )
    yield equal(
        "For two items at the top, λ falls short of that by",
        top * (s - mean + 1) - (k + q) * top * bottom,
        top * (k * (sp.exp(s) - 1) + q * s) / (k * sp.exp(s) + q),
    )
    yield at_most(
        "which is positive",
        0,
        top * (k * s + q * s) / (k * sp.exp(s) + q),
        strict=True,
        why="e^s − 1 ≥ s. So k = 1: the row of least entropy is the one above.",
    )
