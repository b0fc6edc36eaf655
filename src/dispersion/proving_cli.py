"""``dispersion prove``: its options and what it runs."""

from __future__ import annotations

import click


@click.command(short_help="Derive the theorems step by step, each step decided by SymPy.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--list", "listing", is_flag=True, help="List the names and what they are about.")
@click.option(
    "--latex", "latex_path", metavar="FILE", help="Also write the derivations to FILE as LaTeX."
)
def prove(names: tuple[str, ...], listing: bool, latex_path: str | None) -> int:
    """Derive the theorems behind the certificates, step by step.

    NAME is T1 to T16, T3', T13', T13'', cover or witness; without one, all are derived. Each step
    is decided by computer algebra, never by trying numbers, or says what it rests on. Needs SymPy:
    pip install 'dispersion[proofs]'.

    \b
    Exit codes: 0 every step holds, 1 a step fails, 2 bad usage or SymPy is missing.

    \b
    Examples: dispersion prove T3 T13
              dispersion prove --latex theorems.tex
    """  # noqa: D301 - click reads the backspace itself
    from dispersion.proving import run_list, run_prove

    if listing:
        run_list()
        return 0
    return run_prove(names, latex_path)
