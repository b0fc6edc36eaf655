"""What ``dispersion prove`` does once its options are read."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING

import click

from dispersion.commands import _list, _style, _width
from dispersion.proofs import FILES, find, theorem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dispersion.proofs.steps import Done


def run_list() -> None:
    """Print the names of the theorems and what they are about."""
    click.echo("Theorems, for `dispersion prove`")
    _list({name: about for name, (_, about) in FILES.items()})


def run_prove(names: Sequence[str], latex_path: str | None) -> int:
    """Decide every step, print as it goes, and return 1 if a step fails, else 0.

    Raises:
        ArgumentError: an unknown name, or SymPy is missing.
        OutputError: the LaTeX file cannot be written.
    """
    from dispersion.report.writing import OutputFile

    wanted = find(names)
    start = time.perf_counter()
    with contextlib.ExitStack() as stack:
        theorem(wanted[0])  # a missing SymPy shows before a file is touched
        file = stack.enter_context(OutputFile(latex_path)) if latex_path is not None else None
        parts = [(theorem(name), _run(name)) for name in wanted]
        if file is not None:
            from dispersion.proofs.latex import document

            file.write(document(parts))
    return _summary([step for _, steps in parts for step in steps], len(wanted), start)


def _run(name: str) -> list[Done]:
    from dispersion.proofs.printing import opening, step_lines

    width, style = _width(), _style()
    found = theorem(name)
    _print(opening(found, width, style))
    steps = []
    for number, done in enumerate(found.run(), 1):
        steps.append(done)
        _print(step_lines(number, done, width, style))
    click.echo("")
    return steps


def _print(lines: Iterable[str]) -> None:
    with contextlib.suppress(BrokenPipeError):
        for line in lines:
            click.echo(line)


def _summary(steps: Sequence[Done], theorems: int, start: float) -> int:
    counts = Counter(done.verdict for done in steps)
    parts = ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items())
    failed = [done for done in steps if not done.verdict.holds]
    names = f"{theorems} theorem{'s' * (theorems != 1)}"
    with contextlib.suppress(BrokenPipeError):
        click.echo(f"{names}, {len(steps)} steps: {parts}. {time.perf_counter() - start:.1f} s")
        for done in failed:
            click.echo(f"FAILED ({done.verdict.value}): {done.step.claim}")
    return 1 if failed else 0
