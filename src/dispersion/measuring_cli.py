"""The command `dispersion measure`: run a model over documents and summarise what heads did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dispersion.options import read_lengths, reading

if TYPE_CHECKING:
    from dispersion.measure.running import Model
    from dispersion.results import Audit


@click.command(short_help="Measure what a model's heads do on documents. Proves nothing.")
@click.argument("checkpoint")
@click.argument("documents", nargs=-1, required=True)
@click.option(
    "--out",
    required=True,
    metavar="FILE",
    help="Keep every document's statistics in FILE (JSON lines), and go on from what it holds.",
)
@click.option(
    "--length",
    "lengths",
    callback=reading(read_lengths),
    multiple=True,
    metavar="N",
    help="Cut documents to N tokens (4096, 4K) and leave out shorter ones. Default: whole.",
)
@click.option(
    "--needle", metavar="TEXT", help="Put TEXT into every document, and measure its share."
)
@click.option(
    "--depth",
    "depths",
    type=click.FloatRange(0, 1),
    multiple=True,
    metavar="D",
    help="Where the needle goes, 0 (beginning) to 1 (end). Repeatable.",
)
@click.option(
    "--first",
    type=click.IntRange(min=1),
    multiple=True,
    default=(1, 4),
    metavar="M",
    help="Measure the share of the first M tokens. Repeatable. Default: 1 and 4.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    default="float32",
    help="What the model computes in. Default: float32.",
)
@click.option("--no-certificates", is_flag=True, help="Do not audit the weights as well.")
@click.option(
    "--json", "json_path", metavar="FILE", help="Write the summary of every head to FILE."
)
def measure(checkpoint: str, documents: tuple[str, ...], **options: Any) -> int:
    """Run a local transformers CHECKPOINT over DOCUMENTS and say what its heads did there.

    Documents are .txt or .md (text), .json (token ids) or .jsonl files. Needs torch, transformers
    and JAX (extra measure-models). A measurement is of these documents alone: it is no certificate.

    Exit code 2 also where a measured spread exceeds the certified one, which would be a bug.

    Example: dispersion measure ./model book.txt --length 4K --out book.jsonl
    """
    from dispersion.errors import ArgumentError
    from dispersion.measure.documents import read_documents
    from dispersion.measure.records import Records
    from dispersion.measure.running import Model, measure_documents
    from dispersion.measure.summary import as_json, summarise, table
    from dispersion.report.writing import OutputFile

    model = Model(checkpoint, dtype=options["dtype"])
    lengths = options["lengths"] or (None,)
    records = Records(options["out"], _run(model, documents, options))
    try:
        for length in lengths:
            found = read_documents(
                documents,
                model.encode,
                length=length,
                needle=options["needle"],
                encode_needle=model.encode_needle,
                depths=options["depths"],
            )
            measure_documents(model, found, records, first=options["first"])
    finally:
        records.close()
    lines = list(records.found.values())
    if not lines:
        msg = "documents must have at least --length tokens. All are shorter: set a shorter length."
        raise ArgumentError(msg)
    audit = None if options["no_certificates"] else _audit(checkpoint, lines)
    heads = summarise(lines, audit, dtype=model.dtype)
    click.echo(table(heads, len(lines)))
    if options["json_path"]:
        import json

        with OutputFile(options["json_path"]) as file:
            file.write(json.dumps(as_json(heads, len(lines)), indent=1) + "\n")
    beyond = [head for head in heads if head.beyond]
    for head in beyond:
        click.echo(
            f"error: layer {head.layer} head {head.head} was measured at a spread of "
            f"{head.spread:.6g}, above the certified {head.certified_spread:.6g}: one of the two "
            "is a bug of dispersion, please report it",
            err=True,
        )
    return 2 if beyond else 0


def _run(model: Model, documents: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    """What the numbers depend on."""
    from importlib.metadata import version

    stamps = []
    for file in (*model.place.files(), *map(Path, documents)):
        if file.is_file():
            found = file.stat()
            stamps.append([str(file), found.st_size, found.st_mtime_ns])
    kept = {name: options[name] for name in ("needle", "first", "dtype", "lengths", "depths")}
    return {"version": version("dispersion"), "files": stamps, **kept}


def _audit(checkpoint: str, lines: list[dict[str, Any]]) -> Audit | None:
    """Certificates of the same heads, where the family is known."""
    from dispersion.auditing import audit
    from dispersion.errors import UnsupportedError
    from dispersion.verdict import Target

    longest = max((line["tokens"] for line in lines), default=1)
    try:
        return audit(checkpoint, [Target(length=longest)])
    except UnsupportedError as error:
        click.echo(f"warning: no certificates: {error}", err=True)
        return None
