"""What ``dispersion figures`` does once its options are read."""

from __future__ import annotations

import time

import click

from dispersion.drawing import catalogue, style
from dispersion.drawing.gallery import write_page
from dispersion.errors import ArgumentError, OutputError

KINDS = ("png", "svg")


def pictures(script: catalogue.Script) -> dict[str, bytes]:
    """The figure in every format, by format."""
    with style.styled():
        canvas = script.draw()
        return {kind: style.to_bytes(canvas, kind) for kind in KINDS}


def run_list() -> None:
    """Print figure, paper, number and seconds, one line each."""
    rows = [("figure", "paper", "number", "seconds", "recompute")]
    for script in catalogue.scripts():
        figure = script.figure
        again = str(figure.recompute_seconds) if figure.recompute_seconds else "-"
        rows.append((script.name, figure.paper, figure.number, str(figure.seconds), again))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


def run_figures(names: tuple[str, ...], *, recompute: bool, seeds: int | None) -> int:
    """Draw figures, or all of them, and write the gallery.

    Raises:
        ArgumentError: an unknown name, or nothing to recompute.
        UnsupportedError: no matplotlib, or no checkout.
        OutputError: a picture cannot be written.
    """
    scripts = [catalogue.load(name) for name in dict.fromkeys(names)] or catalogue.scripts()
    if seeds is not None and not recompute:
        msg = "--seeds goes with --recompute: drawing takes committed results. Got it alone."
        raise ArgumentError(msg)
    if recompute and not any(script.recompute for script in scripts):
        msg = f"--recompute needs a figure that has results of its own. Got {', '.join(names)}."
        raise ArgumentError(msg)
    if seeds is not None and not any(script.figure.trains for script in scripts):
        trained = [script.name for script in catalogue.scripts() if script.figure.trains]
        msg = f"--seeds goes with {', '.join(trained)}, which trains. Got {', '.join(names)}."
        raise ArgumentError(msg)
    drawn, pinned = style.version(), catalogue.pinned_matplotlib()
    if drawn != pinned:
        note = f"note: matplotlib is {drawn}; the committed pictures come from {pinned}."
        click.echo(note, err=True)
    for script in scripts:
        start = time.perf_counter()
        if recompute and script.recompute is not None:
            script.recompute(seeds)
        changed = [_write(script.name, kind, data) for kind, data in pictures(script).items()]
        state = "changed" if any(changed) else "the same bytes"
        click.echo(f"{script.name}: {state}, {time.perf_counter() - start:.1f} s")
    write_page()
    return 0


def _write(name: str, kind: str, data: bytes) -> bool:
    path = catalogue.folder() / "out" / f"{name}.{kind}"
    try:
        before = path.read_bytes() if path.exists() else None
        if data != before:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
    except OSError as error:
        msg = f"picture {str(path)!r} cannot be written ({error.strerror or error})."
        raise OutputError(msg) from None
    return data != before
