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


class Method(Enum):
    """How a step is decided."""

    ZERO = "the difference simplifies to 0"
    SIGN = "every term of the difference shows its sign"
    SLOPES = "true at {variable} = 0{lower}, and the {name}derivative of the difference in "
    LIMIT = "the limit is computed"
    NONE = "not decided here"


@dataclass(frozen=True)
class Step:
    """One claim of a derivation.

    Attributes:
        claim: what is shown, in words.
        why: the reason that joins it to what came before.
        relation: what is decided, as SymPy writes it; None for a step that rests on something else.
        method: how.
        where: what is substituted before.
        variable: the one in which derivatives are taken, for `Method.SLOPES`.
        order: how many derivatives.
        strict: whether the two sides must differ.
        rests: the verdict and source of a step that is not decided here.
    """

    claim: str
    why: str
    relation: Any
    method: Method
    where: Mapping[Any, Any] = field(default_factory=dict)
    variable: Any = None
    order: int = 1
    strict: bool = False
    rests: tuple[Verdict, str] | None = None

    @property
    def how(self) -> str:
        """The method in words."""
        text = self.method.value
        if self.method is Method.SLOPES:
            name = {1: "", 2: "second ", 3: "third "}[self.order]
            lower = ", as for lower derivatives" if self.order > 1 else ""
            text = text.format(variable=self.variable, lower=lower, name=name)
            text += f"{self.variable} shows its sign"
        if self.where:
            pairs = (f"{plain(old)} = {plain(new)}" for old, new in self.where.items())
            text += ", with " + ", ".join(pairs)
        return text


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
    answer = _decide(step)
    if answer is None:
        return Verdict.UNDECIDED
    return Verdict.PROVED if answer else Verdict.REFUTED


def _decide(step: Step) -> bool | None:
    left, right = step.relation.args
    if right == sp.oo:
        return bool(left.doit() == sp.oo) or None
    try:
        difference = _put(right - left, step.where)
    except NotImplementedError:  # SymPy's way of saying that a limit depends on a sign
        return None
    if step.method is Method.SIGN:
        return is_nonnegative(difference, strict=step.strict)
    if step.method is Method.SLOPES:
        return is_nonnegative_by_slopes(difference, step.variable, step.order)
    return is_zero(difference)


def equal(
    claim: str, left: Any, right: Any, *, where: Mapping[Any, Any] | None = None, why: str = ""
) -> Step:
    """The claim left = right: their difference simplifies to 0, after the substitution `where`."""
    relation = sp.Eq(sp.sympify(left), sp.sympify(right), evaluate=False)
    return Step(claim, why, relation, Method.ZERO, where or {})


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
    kind = sp.Lt if strict else sp.Le
    relation = kind(sp.sympify(left), sp.sympify(right), evaluate=False)
    return Step(claim, why, relation, Method.SIGN, where or {}, strict=strict)


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
    relation = sp.Le(sp.sympify(left), sp.sympify(right), evaluate=False)
    return Step(claim, why, relation, Method.SLOPES, where or {}, variable, order)


def tends(
    claim: str, expression: Any, variable: Any, to: Any, limit: Any, *, why: str = ""
) -> Step:
    """The claim that the expression tends to the limit, by SymPy's Gruntz algorithm."""
    left = sp.Limit(expression, variable, to, "-" if to == sp.oo else "+")
    relation = sp.Eq(left, sp.sympify(limit), evaluate=False)
    return Step(claim, why, relation, Method.LIMIT)


def rests_on_formal(claim: str, name: str, *, why: str = "") -> Step:
    """A claim that a machine-checked theorem proves, named as by `formal_names.formal`."""
    return Step(claim, why, None, Method.NONE, rests=(Verdict.FORMAL, name))


def cited(claim: str, source: str, *, why: str = "") -> Step:
    """A claim of a published theorem that is not derived here."""
    return Step(claim, why, None, Method.NONE, rests=(Verdict.CITED, source))


def _put(expression: Any, where: Mapping[Any, Any]) -> Any:
    # Sums and derivatives first: a substitution inside them could capture their variables.
    pairs = {sp.sympify(old).doit(): sp.sympify(new) for old, new in where.items()}
    return expression.doit().xreplace(pairs)
