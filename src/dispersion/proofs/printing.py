"""A theorem as a lecture in plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispersion.proofs.formulas import one_line
from dispersion.proofs.steps import Done, Theorem, Verdict
from dispersion.report.layout import Style, paragraph

if TYPE_CHECKING:
    from collections.abc import Iterator


def opening(theorem: Theorem, width: int, style: Style) -> Iterator[str]:
    """Name, statement and hypotheses."""
    yield style.bold(f"{theorem.name}  {theorem.title}")
    yield from paragraph(theorem.statement, width, "  ")
    yield from paragraph(one_line(theorem.formula), width, "      ", "        ")
    yield "  Hypotheses"
    for name, text in theorem.hypotheses.items():
        yield from paragraph(f"{name}: {text}.", width, "    ", "      ")
    if theorem.scope:
        yield from paragraph(f"Scope: {theorem.scope}", width, "  ", "    ")
    yield "  Steps"


def step_lines(number: int, done: Done, width: int, style: Style) -> Iterator[str]:
    """One step: claim, relation, reason, verdict."""
    step = done.step
    colon = ":" if step.relation is not None else "."
    yield from paragraph(f"{number:>4}. {step.claim}{colon}", width, "", "      ")
    if step.relation is not None:
        yield from paragraph(one_line(step.relation), width, "        ", "          ")
    if step.why:
        yield from paragraph(step.why, width, "      ")
    yield from paragraph(_verdict(done, style), width, "      ")


def _verdict(done: Done, style: Style) -> str:
    if done.step.rests is not None:
        word = {Verdict.FORMAL: "rests on the machine-checked", Verdict.CITED: "cited from"}
        return f"not decided here; {word[done.verdict]} {done.step.rests[1]}."
    if done.verdict is Verdict.PROVED:
        return style.dim(f"[proved: {done.step.how}; {done.seconds:.2f} s]")
    return style.bold(f"{done.verdict.name}: not shown that {done.step.how}; {done.seconds:.2f} s")
