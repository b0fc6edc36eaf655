"""The commands `dispersion records` and `dispersion correlate`: what files of measurements say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dispersion.contradictions import STDOUT
from dispersion.options import lengths_option

if TYPE_CHECKING:
    from dispersion.measure.models_table import Related
    from dispersion.measure.samples import Tolerance


@click.command(short_help="Summarise, predict from and limit what was measured. Proves nothing.")
@click.argument("file")
@lengths_option(
    "--predict",
    "ahead",
    "Predict every head at N tokens (32K,128K). An estimate, with an interval.",
)
@click.option(
    "--tolerance",
    "statistic",
    type=click.Choice(["spread", "effective_spread", "coefficient"]),
    help="A limit that few documents exceed, per head and length of documents.",
)
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.01,
    help="How many documents may exceed it. Default: 0.01, which takes 299 documents.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.95,
    help="Least confidence of the limit. Default: 0.95.",
)
@click.option("--json", "json_path", metavar="FILE", help="Write it for every head to FILE.")
def records(file: str, **options: Any) -> int:
    """Say what FILE holds, which `dispersion measure --out FILE` wrote. No model is run.

    Example: dispersion records book.jsonl --predict 128K --tolerance spread --share 0.1
    """
    from dispersion.errors import ArgumentError
    from dispersion.measure.records import read_lines
    from dispersion.measuring_cli import report

    path = Path(file)
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no such file"
        msg = f"file must be one that `dispersion measure --out` wrote. Got {file!r}, {what}."
        raise ArgumentError(msg)
    # Documents are the unit of every limit: one that stands there twice counts once.
    lines = list({line["document"]: line for line in read_lines(path)[0][1:]}.values())
    if not lines:
        msg = f"file must hold at least one measured document. Got {file!r}."
        raise ArgumentError(msg)
    extra, before = {}, ""
    if options["statistic"]:
        from dispersion.measure.samples import tolerance_of_heads

        asked = {name: options[name] for name in ("share", "confidence")}
        limits = tolerance_of_heads(lines, options["statistic"], **asked)
        before = _limits(limits, options["statistic"]) + "\n\n"
        extra["tolerance"] = _limits_as_json(limits, options["statistic"])
    ahead, kept = options["ahead"], options["json_path"]
    return report(lines, None, "float32", ahead, kept, extra, before=before)


def _limits(limits: dict[int, list[tuple[int, int, Tolerance]]], statistic: str) -> str:
    """One line a layer: the limits of its heads."""
    from dispersion.lengths import format_length

    lines = []
    for length, heads in limits.items():
        one = heads[0][2]
        lines += [
            f"At {one.confidence:.0%} confidence at most {one.share:.3g} of documents like these "
            f"{one.documents} of {format_length(length)} tokens",
            f"have a row with a larger {statistic.replace('_', ' ')}, hence at most that share of "
            "rows. Estimates, head by head; no bound.",
            "",
            "  layer  heads  limit ≈ lowest  highest",
        ]
        for layer in dict.fromkeys(place for place, _, _ in heads):
            values = [limit.limit.value for place, _, limit in heads if place == layer]
            lines.append(f"  {layer:5d}  {len(values):5d}  {min(values):14.4g}  {max(values):7.4g}")
    return "\n".join(lines)


def _limits_as_json(
    limits: dict[int, list[tuple[int, int, Tolerance]]], statistic: str
) -> dict[str, Any]:
    return {
        "statistic": statistic,
        "limits": [
            {
                "length": length,
                "layer": layer,
                "head": head,
                "limit": found.limit.value,
                "share": found.share,
                "confidence": found.confidence,
                "attained": found.attained,
                "documents": found.documents,
            }
            for length, heads in limits.items()
            for layer, head, found in heads
        ],
    }


@click.command(short_help="What goes together with a score, over a table of models.")
@click.argument("table")
@click.option("--score", required=True, metavar="COLUMN", help="The column to be explained.")
@click.option(
    "--level",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.95,
    help="Confidence of the bootstrap intervals. Default: 0.95.",
)
@click.option("--json", "json_path", metavar="FILE", help="Write it to FILE as well.")
def correlate(table: str, score: str, level: float, json_path: str | None) -> int:
    """R² and rank correlation of every column of TABLE (CSV, a model a line) with a score.

    A column "records" names files that `dispersion measure --out` wrote, beside the table: their
    means over heads join as columns. Intervals are bootstrapped over models; nothing is proved, and
    the more columns, the likelier that one goes together with the score by chance.

    Example: dispersion correlate figures/data/olmpool.csv --score h32
    """
    from dispersion.measure.models_table import read_models, relate, relations_as_json
    from dispersion.report.writing import OutputFile

    found, left = relate(read_models(table), score, level=level)
    text = json.dumps(relations_as_json(found, dict(left), score), indent=1, allow_nan=False) + "\n"
    if json_path == STDOUT:
        click.echo(text, nl=False)
        return 0
    if json_path:
        with OutputFile(json_path) as out:
            out.write(text)
    click.echo(_relations(found, score, level))
    for name, reason in left:
        click.echo(f"left out: {name} ({reason})")
    return 0


def _relations(found: list[Related], score: str, level: float) -> str:
    def ends(one: Any) -> str:
        return f"{one.value.value:6.2f}  ({one.lower.value:5.2f} to {one.upper.value:5.2f})"

    width = max([len("column"), *(len(x.name) for x in found)])
    lines = [
        f"With {score}, {level:.0%} bootstrap intervals over models. Estimates.",
        "",
        f"  {'column':<{width}}  models  {'R² ≈':>6}  {'':18}  {'rank ≈':>6}",
    ]
    lines += [
        f"  {x.name:<{width}}  {x.found.pairs:6d}  {ends(x.found.r_squared)}  {ends(x.found.rank)}"
        for x in found
    ]
    return "\n".join(lines)
