"""T15: inputs that are token ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion.proofs.steps import Step, Theorem, at_most, equal
from dispersion.proofs.symbols import h

if TYPE_CHECKING:
    from collections.abc import Iterator

q1, q2, k1, k2 = sp.symbols("q_1 q_2 k_1 k_2", real=True)
angle, first, second = sp.symbols("φ α β", real=True)
size, other, bound = sp.symbols("|q| |k| B", nonnegative=True)


def steps() -> Iterator[Step]:
    """Pair by pair a rotation can at best align query and key."""
    turn = sp.Matrix([[sp.cos(angle), -sp.sin(angle)], [sp.sin(angle), sp.cos(angle)]])
    key = turn * sp.Matrix([k1, k2])
    yield equal("A rotation keeps the length of a pair", key.dot(key), k1**2 + k2**2)
    yield equal(
        "Lagrange's identity for one pair: |q|²|k|² exceeds the squared logit by a square",
        (q1**2 + q2**2) * (k1**2 + k2**2) - (q1 * k1 + q2 * k2) ** 2,
        (q1 * k2 - q2 * k1) ** 2,
        why="So the pair adds at most |q||k| to the modulus of the logit, whatever the angle, and "
        "|l| ≤ Σ over pairs of |q_pair||k_pair|. An unrotated coordinate is a pair of one.",
    )
    yield equal(
        "One angle per pair aligns it",
        size * sp.cos(first) * other * sp.cos(first) + size * sp.sin(first) * other * sp.sin(first),
        size * other,
        why="Angles of different pairs are free of each other, so over free phases the sum is the "
        "largest logit for these two tokens.",
    )
    yield equal(
        "At a given lag nothing is left open: the logit is",
        sp.Matrix([size * sp.cos(first), size * sp.sin(first)]).dot(
            sp.Matrix([other * sp.cos(second), other * sp.sin(second)])
        ),
        size * other * sp.cos(first - second),
        why="A number for each pair of tokens and each lag.",
    )
    yield at_most(
        "With B the largest over the vocabulary, logits lie in [−B, B] and spread by 2B at most",
        (bound - h) - (-bound + other),
        2 * bound,
        why="The top logit is B − h, the bottom one −B + |k| with nonnegative h, |k|.",
    )


THEOREM = Theorem(
    name="T15",
    title="finite inputs",
    statement="Where inputs are token ids, for a query token a and all rotations |l| ≤ "
    "max over tokens b of Σ over pairs |q_a,pair||k_b,pair|; at a given lag logits are exact.",
    formula=sp.Le(sp.Symbol("|l|"), sp.Symbol("max_b Σ |q_a||k_b|"), evaluate=False),
    hypotheses={
        "inputs": "the layer reads a norm of the token embedding (plus a learned position, if any) "
        "and nothing else, so queries and keys form a finite list",
        "rotation": "pairs of coordinates turn by angles that depend on the position only",
    },
    steps=steps,
)
