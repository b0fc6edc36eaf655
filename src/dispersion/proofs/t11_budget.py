"""T11: what layerwise QK norm leaves to all heads together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion.proofs.steps import Step, Theorem, equal
from dispersion.proofs.symbols import j
from dispersion.proofs.vectors import dot, square, vectors

if TYPE_CHECKING:
    from collections.abc import Iterator

heads, keys, d = sp.symbols("H H_kv d", integer=True, positive=True)
group = sp.Symbol("s", integer=True, positive=True)  # query heads of the largest group
per_key = sp.Symbol("s_0", integer=True, positive=True)  # of every group, where all are equal
query_norm, key_norm = sp.symbols("‖q‖ ‖k‖", positive=True)
NORMS = {query_norm: sp.sqrt(heads * d), key_norm: sp.sqrt(keys * d)}


def steps() -> Iterator[Step]:
    """Cauchy–Schwarz three times: in a head, in a group, over groups."""
    x, y = vectors("x y")
    yield equal(
        "Cauchy–Schwarz: the excess, times ‖y‖², is a square",
        square(y) * (square(x) * square(y) - dot(x, y) ** 2),
        square(square(y) * x - dot(x, y) * y),
        why="In head h it gives m_h ≤ ‖q_h‖·‖k_g‖/√d, g the group of h.",
    )
    norms, ones = vectors("r 1")
    yield equal(
        "In a group of s heads it bounds the sum of the norms r_h = ‖q_h‖",
        group * square(norms) - dot(norms, ones) ** 2,
        square(group * norms - dot(norms, ones) * ones) / group,
        where={square(ones): group},
        why="1 is the vector of s ones. So Σ_h ‖q_h‖ ≤ √s·(Σ_h ‖q_h‖²)^(1/2) over the group, and "
        "over groups once more: Σ_h m_h ≤ √s·‖q‖·‖k‖/√d, s the largest group.",
    )
    yield equal(
        "Layerwise norm gives ‖q‖ = √(Hd) and ‖k‖ = √(H_kv·d), hence",
        sp.sqrt(group) * query_norm * key_norm / sp.sqrt(d),
        sp.sqrt(group * heads * keys * d),
        where=NORMS,
        why="Attained: both norms in one largest group, its s heads equal and aligned.",
    )
    yield equal(
        "Equal groups, H = s_0·H_kv: the total is H√d",
        sp.sqrt(group * heads * keys * d),
        heads * sp.sqrt(d),
        where={group: per_key, heads: per_key * keys},
    )
    yield equal(
        "It is attained: every head and key head of norm √d, aligned, has m_h = √d",
        sp.Sum(sp.sqrt(d), (j, 1, heads)),
        heads * sp.sqrt(d),
        why="Then ‖q‖² = H·d and ‖k‖² = H_kv·d, as layerwise norm demands. The mean over heads is "
        "√d, what headwise norm allows each head.",
    )
    yield equal(
        "One head alone may take both norms",
        query_norm * key_norm / sp.sqrt(d),
        sp.sqrt(heads * keys) * sp.sqrt(d),
        where=NORMS,
        why="Attained with all other heads at 0.",
    )
    yield equal(
        "If each head picks its own key token, Σ_h ‖q_h‖·√(H_kv·d)/√d is at most",
        sp.sqrt(heads) * query_norm * key_norm / sp.sqrt(d),
        heads * sp.sqrt(keys * d),
        where=NORMS,
        why="By the second step with all H heads in one group. Attained with ‖q_h‖ = √d and each "
        "head's own key token all in its key head. It exceeds H√d: no budget on rows' ceilings.",
    )


THEOREM = Theorem(
    name="T11",
    title="budget of layerwise QK norm",
    statement="For one query token against one key token the moduli m_h of the logits of all heads "
    "sum to at most √(s·H·H_kv·d), which is H√d for equal groups; attained. One head alone may "
    "reach √(H·H_kv·d), and Σ m_h ≤ H√(H_kv·d) where each head picks its own key token.",
    formula=sp.Le(sp.Symbol("Σ m_h"), sp.sqrt(group * heads * keys * d), evaluate=False),
    hypotheses={
        "norm": "RMS norm over the concatenated heads, unit gains, of queries and of keys",
        "heads": "H query heads in groups over H_kv key heads of width d; s is the largest group",
        "scale": "1/√d; rotations change no modulus bound",
    },
    steps=steps,
)
