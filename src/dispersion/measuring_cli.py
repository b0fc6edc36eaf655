"""The command `dispersion measure`: run a model over documents and summarise what heads did."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dispersion.contradictions import STDOUT
from dispersion.options import lengths_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dispersion.measure.documents import Document, Needle
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
@lengths_option(
    "--length",
    "lengths",
    "Cut documents to N tokens (4096, 4K) and leave out shorter ones. Default: whole.",
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
    "--question", default="", metavar="TEXT", help="Put TEXT behind every document with a needle."
)
@click.option(
    "--answer",
    default="",
    metavar="TEXT",
    help="The part of the needle that answers the question. Default: all of it.",
)
@click.option(
    "--retrieve",
    is_flag=True,
    help="Let the model write behind each document, and score the heads that copy the answer.",
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
@lengths_option(
    "--predict",
    "ahead",
    "Predict every head at N tokens (32K,128K). An estimate, with an interval.",
)
@click.option("--no-certificates", is_flag=True, help="Do not audit the weights as well.")
@click.option(
    "--json", "json_path", metavar="FILE", help="Write the summary of every head to FILE."
)
def measure(checkpoint: str, documents: tuple[str, ...], **options: Any) -> int:
    """Run a local transformers CHECKPOINT over DOCUMENTS and say what its heads did there.

    CHECKPOINT is a folder or a GGUF file. Documents are .txt or .md (text), .json (token ids) or
    .jsonl files. Needs torch, transformers and JAX (extra measure-models). A measurement is of
    these documents alone: it is no certificate, and a prediction from it is none either.

    Exit code 2 also where a measured value lies beyond a certificate, which would be a bug.

    Example: dispersion measure ./model book.txt --length 4K --out book.jsonl --predict 32K,128K
    """
    from dispersion.errors import ArgumentError
    from dispersion.measure.documents import read_documents
    from dispersion.measure.records import Records
    from dispersion.measure.running import Model, measure_documents

    needle = _needle(options)
    model = Model(checkpoint, dtype=options["dtype"], generates=options["retrieve"])
    lengths = options["lengths"] or (None,)
    records = Records(options["out"], _run(model, documents, options))
    short: list[str] = []
    try:
        for length in lengths:
            found = read_documents(
                documents,
                model.encode,
                length=length,
                needle=needle,
                encode_needle=model.encode_needle,
                left_out=short,
            )
            with _progress(found) as shown:
                measure_documents(
                    model, shown, records, first=options["first"], retrieve=options["retrieve"]
                )
    finally:
        records.close()
    lines = list(records.found.values())
    if not lines:
        msg = "documents must have at least --length tokens. All are shorter: set a shorter length."
        raise ArgumentError(msg)
    if short:
        names = ", ".join(short[:3]) + (" …" if len(short) > 3 else "")
        click.echo(f"warning: {len(short)} documents are too short, left out: {names}", err=True)
    audit = None if options["no_certificates"] else _audit(model.place.path, lines)
    return report(lines, audit, model.dtype, options["ahead"], options["json_path"])


def report(
    lines: list[dict[str, Any]],
    audit: Audit | None,
    dtype: str,
    ahead: tuple[int, ...] | None,
    json_path: str | None,
    extra: dict[str, Any] | None = None,
    *,
    before: str = "",
) -> int:
    """Print the summary, and predictions where asked for; the exit code.

    `extra` goes to the file, and `before` stands above the summary.
    """
    from dispersion.measure.outlook import outlook, predictions_as_json
    from dispersion.measure.predictions import by_length, predict_heads
    from dispersion.measure.summary import SINK, as_json, sink_rate_of, summarise, table
    from dispersion.report.writing import OutputFile

    heads = summarise(lines, audit, dtype=dtype)
    shown = [before + table(heads, len(lines))]
    if (rate := sink_rate_of(lines)) is not None:
        shown.append(f"Sink rate (first token's mean share above {SINK:g}): {rate:.2f} of heads.")
    kept = {**as_json(heads, len(lines)), "sink_rate": rate, **(extra or {})}
    if ahead:
        measured = by_length(lines)
        predicted = predict_heads(measured, ahead)
        longest = max((float(x.lengths[-1]) for x in measured if len(x.lengths)), default=0.0)
        shown.append("\n" + outlook(predicted, ahead, longest))
        kept["predictions"] = predictions_as_json(predicted)
    text = json.dumps(kept, indent=1, allow_nan=False) if json_path else ""
    if json_path and json_path != STDOUT:
        # Before anything is printed: half an answer would look like a whole one.
        with OutputFile(json_path) as file:
            file.write(text + "\n")
    click.echo(text if json_path == STDOUT else "\n".join(shown))
    beyond = [head for head in heads if head.beyond]
    for head in beyond:
        click.echo(
            f"error: layer {head.layer} head {head.head}: measured {', '.join(head.beyond)} beyond "
            "the certificate: one of the two is a bug of dispersion, please report it",
            err=True,
        )
    return 2 if beyond else 0


def _needle(options: dict[str, Any]) -> Needle | None:
    from dispersion.errors import ArgumentError
    from dispersion.measure.documents import Needle

    text, depths = options["needle"], options["depths"]
    if (text is None) != (not depths):
        msg = "--needle and --depth go together: give both or neither."
        raise ArgumentError(msg)
    if text is None:
        for name in ("question", "answer", "retrieve"):
            if options[name]:
                msg = f"--{name} goes with --needle and --depth: there is nothing to retrieve."
                raise ArgumentError(msg)
        return None
    return Needle(text, depths, options["question"], options["answer"])


@contextlib.contextmanager
def _progress(documents: Iterator[Document]) -> Iterator[Iterable[Document]]:
    """Documents with a bar on a terminal's standard error; bare ones elsewhere."""
    import sys

    if not sys.stderr.isatty():
        yield documents
        return
    with click.progressbar(list(documents), label="measured", file=sys.stderr) as bar:
        yield bar


def _run(model: Model, documents: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    """What the numbers depend on."""
    from importlib.metadata import version

    stamps = []
    for file in (*model.place.files(), *map(Path, documents)):
        if file.is_file():
            found = file.stat()
            stamps.append([str(file), found.st_size, found.st_mtime_ns])
    kept = {
        name: options[name]
        for name in (
            "needle",
            "question",
            "answer",
            "retrieve",
            "first",
            "dtype",
            "lengths",
            "depths",
        )
    }
    return {"version": version("dispersion"), "files": stamps, **kept}


def _audit(checkpoint: str, lines: list[dict[str, Any]]) -> Audit | None:
    """Certificates of the same heads, where the family is known."""
    from dispersion.auditing import audit
    from dispersion.errors import UnsupportedError
    from dispersion.verdict import Target

    longest = max((line["tokens"] for line in lines), default=1)
    try:
        return audit(checkpoint, [Target(longest), Target(longest, retrieval="any")])
    except UnsupportedError as error:
        click.echo(f"warning: no certificates: {error}", err=True)
        return None
