"""``dispersion figures``: its options; what it runs is in `dispersion.drawing`."""

from __future__ import annotations

import click


@click.command(short_help="Draw the figures of a checkout.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--list", "listing", is_flag=True, help="Print figure, paper, number and seconds; draw nothing."
)
@click.option("--recompute", is_flag=True, help="Compute the results a figure shows anew, first.")
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --recompute: trainings in all; finished ones are kept. Default: 5.",
)
def figures(names: tuple[str, ...], listing: bool, recompute: bool, seeds: int | None) -> int:
    """Draw figures from formulas and committed results: into figures/out, as PNG and SVG.

    Without a NAME all are drawn. The page figures/README.md, with their captions, is written too.
    Needs matplotlib (pip install --group figures) and a checkout of the project.

    \b
    Examples: dispersion figures --list
              dispersion figures capacity_width
    """  # noqa: D301 - click reads the backspace itself
    from dispersion.drawing.command import run_figures, run_list

    if listing:
        if names or recompute or seeds:
            msg = "--list draws nothing; leave the other options and names out."
            raise click.UsageError(msg)
        run_list()
        return 0
    return run_figures(names, recompute=recompute, seeds=seeds)
