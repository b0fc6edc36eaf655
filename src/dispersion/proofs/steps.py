"""Theorems as lectures that are checked: a statement, its hypotheses and steps that are decided.

A step claims an equation, an inequality or a limit between SymPy expressions. It is *proved* where
algebra decides it (`deciding`), *refuted* where a point contradicts it, *undecided* otherwise; only
the first counts. A step may instead rest on a machine-checked proof or a published theorem; it says
so, and its verdict is not "proved".
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import sympy as sp

from dispersion.proofs.deciding import is_nonnegative, is_nonnegative_by_slopes, is_zero
from dispersion.proofs.formulas import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class Verdict(Enum):
    """What became of a step."""

    PROVED = "proved"
    FORMAL = "rests on"
    CITED = "cited"
    REFUTED = "refuted"
    UNDECIDED = "undecided"

    @property
    def holds(self) -> bool:
        return self not in (Verdict.REFUTED, Verdict.UNDECIDED)


@dataclass(frozen=True)
class Step:
    """One claim of a derivation.

    Attributes:
        claim: what is shown, in words.
        why: the reason that joins it to what came before.
        shown: the relation as SymPy writes it; None for a step that rests on something else.
        how: the method that decides it.
        decide: True, False or None, as in `deciding`.
        rests: the verdict and source of a step that is not decided here.
    """

    claim: str
    why: str
    shown: Any
    how: str
    decide: Callable[[], bool | None]
    rests: tuple[Verdict, str] | None = None


@dataclass(frozen=True)
class Done:
    """A step, its verdict and the seconds it took."""

    step: Step
    verdict: Verdict
    seconds: float


@dataclass(frozen=True)
class Theorem:
    """A statement with its hypotheses and a derivation.

    Attributes:
        name: T1, T3′ and so on.
        title: a few words.
        statement: the statement in words and formulas.
        formula: the statement's main formula, a SymPy relation.
        hypotheses: name to text.
        steps: makes the steps when called.
        scope: what is not derived here, if anything.
    """

    name: str
    title: str
    statement: str
    formula: Any
    hypotheses: Mapping[str, str]
    steps: Callable[[], Iterator[Step]]
    scope: str = field(default="")

    def run(self) -> Iterator[Done]:
        """Decide one step after the other."""
        for step in self.steps():
            start = time.perf_counter()
            verdict = verdict_of(step)
            yield Done(step, verdict, time.perf_counter() - start)


def verdict_of(step: Step) -> Verdict:
    """Decide one step."""
    if step.rests is not None:
        return step.rests[0]
    answer = step.decide()
    if answer is None:
        return Verdict.UNDECIDED
    return Verdict.PROVED if answer else Verdict.REFUTED


def equal(
    claim: str, left: Any, right: Any, *, where: Mapping[Any, Any] | None = None, why: str = ""
) -> Step:
    """The claim left = right: their difference simplifies to 0, after the substitution `where`."""
    left, right = sp.sympify(left), sp.sympify(right)
    return Step(
        claim,
        why,
        sp.Eq(left, right, evaluate=False),
        "the difference simplifies to 0" + _after(where),
        lambda: is_zero(_put(left - right, where)),
    )


def at_most(
    claim: str,
    left: Any,
    right: Any,
    *,
    where: Mapping[Any, Any] | None = None,
    why: str = "",
    strict: bool = False,
) -> Step:
    """The claim left ≤ right (<, if strict): the difference has terms of one sign only."""
    left, right = sp.sympify(left), sp.sympify(right)
    relation = sp.Lt if strict else sp.Le
    return Step(
        claim,
        why,
        relation(left, right, evaluate=False),
        "every term of the difference shows its sign" + _after(where),
        lambda: is_nonnegative(_put(right - left, where), strict=strict),
    )


def at_most_from_zero(
    claim: str,
    left: Any,
    right: Any,
    variable: Any,
    order: int = 1,
    *,
    where: Mapping[Any, Any] | None = None,
    why: str = "",
) -> Step:
    """The claim left ≤ right for variable ≥ 0, from derivatives at 0 and the sign of the last."""
    left, right = sp.sympify(left), sp.sympify(right)
    lower = ", as for lower derivatives" if order > 1 else ""
    name = {1: "", 2: "second ", 3: "third "}[order]
    return Step(
        claim,
        why,
        sp.Le(left, right, evaluate=False),
        f"true at {variable} = 0{lower}, and the {name}derivative of the "
        f"difference in {variable} shows its sign" + _after(where),
        lambda: is_nonnegative_by_slopes(_put(right - left, where), variable, order),
    )


def tends(
    claim: str, expression: Any, variable: Any, to: Any, limit: Any, *, why: str = ""
) -> Step:
    """The claim that the expression tends to the limit, by SymPy's Gruntz algorithm."""
    left = sp.Limit(expression, variable, to, "-" if to == sp.oo else "+")
    return Step(
        claim,
        why,
        sp.Eq(left, limit, evaluate=False),
        "the limit is computed",
        lambda: is_zero(left.doit() - limit) if limit != sp.oo else left.doit() == sp.oo,
    )


def rests_on_formal(claim: str, name: str, *, why: str = "") -> Step:
    """A claim that the machine-checked theorem of that name proves."""
    return Step(claim, why, None, "not decided here", lambda: None, (Verdict.FORMAL, name))


def cited(claim: str, source: str, *, why: str = "") -> Step:
    """A claim of a published theorem that is not derived here."""
    return Step(claim, why, None, "not decided here", lambda: None, (Verdict.CITED, source))


def _put(expression: Any, where: Mapping[Any, Any] | None) -> Any:
    # Sums and derivatives first: a substitution inside them could capture their variables.
    pairs = {sp.sympify(old).doit(): sp.sympify(new) for old, new in (where or {}).items()}
    return expression.doit().xreplace(pairs)


def _after(where: Mapping[Any, Any] | None) -> str:
    if not where:
        return ""
    return ", with " + ", ".join(f"{plain(key)} = {plain(value)}" for key, value in where.items())
