"""T5: entropy falls as logits are sharpened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion import symbolic
from dispersion.proofs.formulas import Named
from dispersion.proofs.steps import Step, Theorem, at_most, equal
from dispersion.proofs.symbols import x, y

if TYPE_CHECKING:
    from collections.abc import Iterator

b = sp.Symbol("β", nonnegative=True)
Z = sp.Function("Z", positive=True)(b)
first, second = sp.Derivative(Z, b), sp.Derivative(Z, (b, 2))
mean = sp.Symbol("μ", real=True)
one, two = sp.symbols("α_1 α_2", positive=True)
i, n = sp.Symbol("i", integer=True), sp.Symbol("n", integer=True, positive=True)
logit = sp.IndexedBase("l", real=True)


def steps() -> Iterator[Step]:
    """Write the entropy by the partition function and differentiate."""
    yield equal(
        "One coefficient α = e^(βl)/Z adds to the entropy",
        -sp.exp(b * x) / y * (sp.log(sp.exp(b * x)) - sp.log(y)),
        sp.exp(b * x) / y * (sp.log(y) - b * x),
        why="y stands for Z = Σ e^(βl). Summed over the row: H = log Z − βμ with μ = Σ α l.",
    )
    yield equal(
        "Every term of Z has the derivative l·e^(βl) in β",
        sp.Derivative(sp.exp(b * x), b),
        x * sp.exp(b * x),
        why="Hence μ = Z′/Z, and Z″ = Σ l² e^(βl):",
    )
    yield equal("the second derivative", sp.Derivative(sp.exp(b * x), (b, 2)), x**2 * sp.exp(b * x))
    entropy = sp.log(Z) - b * first / Z
    yield equal(
        "The entropy has the slope",
        sp.diff(entropy, b),
        -b * (second / Z - (first / Z) ** 2),
    )
    yield equal(
        "in which the bracket is the variance of the logits: with μ = Z′/Z",
        second / Z - 2 * mean * first / Z + mean**2,
        second / Z - (first / Z) ** 2,
        where={mean: first / Z},
        why="The left side is the average of l² − 2μl + μ² = (l−μ)² over the row.",
    )
    yield at_most(
        "A variance is not negative, so neither is β times it",
        0,
        b * (one * (x - mean) ** 2 + two * (y - mean) ** 2),
        why="Two terms of the sum are shown; all have this form.",
    )
    logits = [x, y, sp.Symbol("z", real=True)]
    entropy = symbolic.row_entropy(logits, inverse_temperature=b)
    slope = symbolic.entropy_slope(logits, inverse_temperature=b)
    yield equal(
        "The toolkit's slope is the derivative of its entropy: three items at any logits",
        sp.Derivative(Named("row_entropy(x, y, z; β)", entropy), b),
        Named("entropy_slope(x, y, z; β)", slope),
    )


THEOREM = Theorem(
    name="T5",
    title="temperature",
    statement="For inverse temperature β ≥ 0 the entropy H of softmax(βl) has dH/dβ = −β·Var_α(l) "
    "≤ 0.",
    formula=sp.Eq(
        sp.Derivative(sp.Function("H")(b), b), -b * sp.Symbol("Var_α(l)"), evaluate=False
    ),
    hypotheses={
        "row": "n ≥ 1 unmasked items with real logits l, which do not depend on β",
        "temperature": "β ≥ 0",
    },
    steps=steps,
)
