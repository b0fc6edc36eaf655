"""``figures/README.md``: every figure with its caption, source, theorems and command."""

from __future__ import annotations

from dispersion.drawing.catalogue import Script, folder, paper, scripts

MISSING = """\
## Not here yet

- Attention statistics of the models that other papers trained (sink mass, needle mass, entropy by
  layer): they need forward passes of models of 7 to 8 billion parameters.
"""

INTRODUCTION = """\
# Figures

Drawn by `dispersion figures`, which also writes this page. Formulas come from the package, results
from [data](data/README.md), and drawing is deterministic: the same matplotlib draws the same bytes.

    pip install --group figures -e .
    dispersion figures --list          # names, papers, numbers, seconds
    dispersion figures                 # redraw all from committed data, in under three minutes
    dispersion figures NAME            # only some
    dispersion figures NAME --recompute [--seeds N]    # its data too

Numbers that papers published are quoted from [data/quoted.csv](data/quoted.csv), with the place
they come from and whether it was read in the paper, in another text about it, or is a recollection.
"""


def source(script: Script) -> str:
    """Who is redrawn, or set beside our formulas."""
    about = paper(script.figure.paper)
    if not about["url"]:
        return f"{about['title']}; {script.figure.number}"
    where = f"[{about['authors']} {about['year']}]({about['url']})"
    return f"{where}, {about['title']}; {script.figure.number}"


def entry(script: Script) -> str:
    """One figure of the page."""
    figure, name = script.figure, script.name
    takes = f"about {figure.seconds} s"
    if script.recompute is not None:
        takes += f"; its data (`--recompute`) about {figure.recompute_seconds} s"
    return (
        f"## {figure.title}\n\n"
        f"![{figure.title}](out/{name}.png)\n\n"
        f"{' '.join(script.caption().split())}\n\n"
        f"Source: {source(script)}. Theorems: {figure.theorems}. "
        f"Command: `dispersion figures {name}` ({takes}). "
        f"Files: [script]({name}.py), [SVG](out/{name}.svg).\n"
    )


def page() -> str:
    """The whole page, as it is committed."""
    return "\n".join([INTRODUCTION, *map(entry, scripts()), MISSING])


def write_page() -> None:
    """Write the page; OutputError where it cannot be."""
    from dispersion.report.writing import OutputFile

    with OutputFile(folder() / "README.md") as file:
        file.write(page())
