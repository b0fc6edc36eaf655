"""The figures of a checkout: one script each in its folder ``figures``.

A script defines `FIGURE`, a `Figure`; `caption()`, text whose numbers come from formulas or data;
`draw()`, a matplotlib figure made by `dispersion.drawing.style`; and, where drawing needs results
that take long, `recompute(seeds)`, which writes them to ``figures/data``.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import re
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dispersion
from dispersion.errors import ArgumentError, CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Figure:
    """What a script says about its figure.

    Attributes:
        title: of the gallery's entry.
        paper: a key of ``data/papers.csv``, "own" for results of this project.
        number: the figure, table or theorem of that paper that it redraws or sets beside others.
        theorems: those of this project that it draws, such as "T1, T4"; "-" where none.
        seconds: drawing takes about so long, on one core.
        recompute_seconds: `recompute` takes about so long; 0 where there is none.
        trains: whether `recompute` runs a training for each of a number of seeds.
    """

    title: str
    paper: str
    number: str
    theorems: str
    seconds: int
    recompute_seconds: int = 0
    trains: bool = False


@dataclass(frozen=True)
class Script:
    """A loaded script."""

    name: str
    figure: Figure
    caption: Callable[[], str]
    draw: Callable[[], Any]
    recompute: Callable[[int | None], None] | None


def folder() -> Path:
    """The folder ``figures`` of the checkout that the package or the working directory is in.

    Raises:
        UnsupportedError: neither is a checkout of this project.
    """
    for root in (Path(dispersion.__file__).parents[2], Path.cwd()):
        try:
            project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if project.get("project", {}).get("name") == "dispersion":
            return root / "figures"
    msg = (
        "figures are drawn in a checkout of the project, which holds their scripts and data: "
        "change to its folder. Got an installed package and another working directory."
    )
    raise UnsupportedError(msg)


def pinned_matplotlib() -> str:
    """The matplotlib version that the committed pictures were drawn with."""
    text = (folder().parent / "pyproject.toml").read_text(encoding="utf-8")
    group = tomllib.loads(text)["dependency-groups"]["figures"]
    return str(next(line for line in group if line.startswith("matplotlib==")).partition("==")[2])


def names() -> tuple[str, ...]:
    """The figures' names, sorted."""
    return tuple(sorted(path.stem for path in folder().glob("*.py")))


def scripts() -> list[Script]:
    """All scripts, by the order of ``data/papers.csv``, then by name."""
    order = [row["key"] for row in table("papers.csv")]
    return sorted(map(load, names()), key=lambda script: order.index(script.figure.paper))


@cache
def load(name: str) -> Script:
    """Load one script.

    Raises:
        ArgumentError: there is no such figure.
    """
    if name not in names():
        msg = f"NAME must be one of {', '.join(names())}. Got {name[:40]!r}."
        raise ArgumentError(msg)
    path = folder() / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"dispersion_figure_{name}", path)
    if spec is None or spec.loader is None:
        msg = f"figure {name} cannot be loaded from {path}."
        raise UnsupportedError(msg)
    module = importlib.util.module_from_spec(spec)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes
    return Script(
        name,
        module.FIGURE,
        module.caption,
        module.draw,
        getattr(module, "recompute", None),
    )


def _file(name: str) -> Path:
    path = folder() / "data" / name
    if not path.is_file():
        msg = f"figures/data/{name} is missing; restore it or run 'dispersion figures --recompute'."
        raise CheckpointError(msg)
    return path


def table(name: str) -> list[dict[str, str]]:
    """The rows of a CSV file in ``figures/data``; CheckpointError where it is missing."""
    with _file(name).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def results(name: str) -> Any:
    """A JSON file in ``figures/data``; CheckpointError where it is missing."""
    return json.loads(_file(name).read_text(encoding="utf-8"))


def kept(name: str) -> Any:
    """What `results` gives, or {} where there is no such file yet."""
    return results(name) if (folder() / "data" / name).is_file() else {}


def write_results(name: str, value: Any) -> None:
    """Write a JSON file into ``figures/data``, whole or not at all."""
    from dispersion.report.writing import OutputFile

    text = json.dumps(value, indent=1, ensure_ascii=False)
    # Lists of numbers on one line each.
    text = re.sub(r"\[\s+([^][{}]*?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    with OutputFile(folder() / "data" / name) as file:
        file.write(text + "\n")


def quoted(key: str) -> float:
    """A published number from ``data/quoted.csv``, where its source stands beside it."""
    return float(_quoted()[key]["value"])


@cache
def _quoted() -> dict[str, dict[str, str]]:
    return {row["key"]: row for row in table("quoted.csv")}


@cache
def paper(key: str) -> dict[str, str]:
    """A row of ``data/papers.csv``: key, authors, year, title, url."""
    return {row["key"]: row for row in table("papers.csv")}[key]
