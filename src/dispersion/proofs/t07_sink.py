"""T7: extra mass in the denominator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from dispersion import symbolic
from dispersion.proofs.steps import Step, Theorem, at_most, at_most_from_zero, equal, tends
from dispersion.proofs.symbols import d, h, j, m, n, x

if TYPE_CHECKING:
    from collections.abc import Iterator

b = sp.Symbol("b", real=True)  # the sink's logit
top = sp.Symbol("hi", real=True)
rest = sp.Symbol("R", nonnegative=True)
g = sp.Symbol("g", nonnegative=True)
CEILING = symbolic.max_coefficient_with_sink(n, d, top, sink=b)


def steps() -> Iterator[Step]:
    """As T1, with one term more; here the level of the logits matters."""
    yield equal(
        "A coefficient beside a sink",
        sp.exp(x) / (sp.exp(x) + rest * sp.exp(x) + sp.exp(b)),
        1 / (1 + rest + sp.exp(b - x)),
        why="R sums e^(l_j − x) over the other n−1 items.",
    )
    yield at_most_from_zero(
        "The sink's term is least for an item at the top",
        sp.exp(b - top),
        sp.exp(b - top + g),
        g,
        why="x = hi − g with g ≥ 0. By T1, R is at least (n−1)e^−δ, δ = hi − lo.",
    )
    yield at_most(
        "The ceiling",
        1 / (1 + rest + sp.exp(b - top) + g),
        CEILING,
        where={rest: m * sp.exp(-d) + h, n: m + 1},
    )
    yield equal(
        "It is attained by one item at hi and the rest at lo",
        sp.exp(top) / (sp.exp(top) + (n - 1) * sp.exp(top - d) + sp.exp(b)),
        CEILING,
    )
    yield at_most(
        "It is below the ceiling of T1",
        CEILING,
        symbolic.max_coefficient(n, d),
        where={n: m + 1},
    )
    yield equal(
        "The sink's own share, R′ being the sum of e^(l_j)",
        sp.exp(b) / (sp.exp(b) + rest),
        symbolic.sink_share(n, x, sink=b),
        where={rest: n * sp.exp(x)},
        why="If all logits are x. In general R′ lies between n·e^lo and n·e^hi:",
    )
    yield equal("the sum of n equal terms", sp.Sum(sp.exp(x), (j, 1, n)), n * sp.exp(x))
    yield at_most(
        "A larger sum leaves the sink less: R′ + h instead of R′",
        sp.exp(b) / (sp.exp(b) + rest + h),
        sp.exp(b) / (sp.exp(b) + rest),
        why="So the share lies between those at n·e^hi and n·e^lo, attained at constant rows.",
    )
    yield tends(
        "With bounded logits the sink's share falls like 1/n",
        n * symbolic.sink_share(n, x, sink=b),
        n,
        sp.oo,
        sp.exp(b - x),
    )
    shares = sp.exp(x) / (n * sp.exp(x) + sp.exp(b))
    yield equal(
        "The floor of T1 fails: n level items have spread 0, for which it says 1/n, but hold",
        sp.Rational(1) / n - shares,
        sp.exp(b) / (n * (n * sp.exp(x) + sp.exp(b))),
        why="each less than 1/n by this much.",
    )
    yield equal(
        "Softmax-off-by-one is the sink b = 0",
        sp.exp(top) / (sp.exp(top) + (n - 1) * sp.exp(top - d) + 1),
        symbolic.max_coefficient_with_sink(n, d, top),
    )
    yield equal(
        "whose share, among n level logits x, is",
        sp.exp(0) / (sp.exp(0) + sp.Sum(sp.exp(x), (j, 1, n))),
        symbolic.sink_share(n, x),
    )


THEOREM = Theorem(
    name="T7",
    title="a sink in the denominator",
    statement="With a learned sink logit b and logits in [lo, hi], α_max ≤ "
    "1/(1+(n−1)e^(lo−hi)+e^(b−hi)), and the sink's share lies between e^b/(e^b+n·e^hi) and "
    "e^b/(e^b+n·e^lo). All are attained. T1's floor does not hold for the others.",
    formula=sp.Le(sp.Symbol("α_i"), CEILING, evaluate=False),
    hypotheses={
        "row": "n ≥ 1 unmasked items with logits in [lo, hi], constants included; δ = hi − lo",
        "sink": "a real logit b in the denominator only (b = −∞: none)",
    },
    steps=steps,
)
