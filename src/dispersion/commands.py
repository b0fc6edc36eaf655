"""What the commands do once their options are read."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click

from dispersion.contradictions import DEMO, STDOUT, refuse_contradictions
from dispersion.lengths import DEFAULT_LENGTHS
from dispersion.verdict import Target, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from dispersion.report.layout import Style
    from dispersion.report.writing import OutputFile
    from dispersion.results import Audit
    from dispersion.verdict import Retrieval

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Request:
    """The options of ``dispersion check`` as given; None where an option was not."""

    paths: tuple[str, ...]
    lengths: tuple[int, ...] | None
    coefficient: float
    retrieval: Retrieval
    sink_tokens: int
    layers: frozenset[int] | None
    heads: frozenset[int] | None
    offsets: str
    inputs: str
    budget: float | None
    jobs: int | None
    scheduler: str | None
    resume: str | None
    device: str | None
    json_path: str | None
    csv_path: str | None
    fail_on: frozenset[Verdict] | None
    quiet: bool
    query_heads: int | None
    key_heads: int | None
    scale: float | None
    rope: float | None
    input_norm: float | None
    dry_run: bool = False

    @property
    def targets(self) -> tuple[Target, ...] | None:
        """The questions; None where no length was given, and the model decides."""
        return None if self.lengths is None else self.ask(self.lengths)

    def ask(self, lengths: tuple[int, ...]) -> tuple[Target, ...]:
        """Ask the same at each length."""
        return tuple(
            Target(length, self.coefficient, self.retrieval, self.sink_tokens) for length in lengths
        )


def run_check(request: Request) -> int:
    """Check, write what was asked for, and return the exit code.

    Raises:
        ArgumentError: options that do not go together.
        DispersionError: whatever reading, checking or writing raises.
    """
    refuse_contradictions(request)
    request.ask(DEFAULT_LENGTHS)  # a bad target shows before a file is touched
    with contextlib.ExitStack() as stack:
        json_file = _prepare(request.json_path, stack)
        csv_file = _prepare(request.csv_path, stack)
        if request.dry_run:
            return _run_dry(request, json_file, csv_file)
        audit = _audit(request)
        _write(audit, request, json_file, csv_file)
    return exit_code(audit, request)


def _warn(request: Request, message: str) -> None:
    if not request.quiet:
        click.echo(f"note: {message}", err=True)


def exit_code(audit: Audit, request: Request) -> int:
    """3 if something asked for has no answer, 1 if a --fail-on verdict occurred, else 0."""
    asked_and_left_out = bool(request.lengths and audit.left_out)
    if not audit.complete or asked_and_left_out or not audit.targets:
        return 3
    return 1 if audit.verdicts() & (request.fail_on or frozenset()) else 0


def run_families() -> None:
    """Print the supported model families and the bundled checkpoints."""
    from dispersion import demo
    from dispersion.architectures import families
    from dispersion.architectures.wrappers import WRAPPERS

    known = {
        ", ".join(kind for kind in family.model_types if kind not in WRAPPERS): family.notes
        for family in families()
    }
    held: dict[str, list[str]] = {}
    for outer in sorted(WRAPPERS):
        held.setdefault(WRAPPERS[outer].inner, []).append(outer)
    bundled = {DEMO + name: demo.about(name) for name in demo.names()}
    click.echo("Model families, by model_type in config.json")
    _list(known)
    click.echo("\nModels with images or sound, by the language model held where they name no other")
    _list({inner: ", ".join(held[inner]) for inner in sorted(held)})
    click.echo("\nBundled checkpoints, for `dispersion check`")
    _list(bundled)


def publish(
    find: Callable[[], Answer],
    render: Callable[..., str],
    to_json: Callable[[Answer], str],
    json_path: str | None,
) -> int:
    """Find an answer, write its JSON where asked, else or also print it; return the exit code.

    Raises:
        DispersionError: whatever finding or writing raises.
    """
    with contextlib.ExitStack() as stack:
        json_file = _prepare(json_path, stack)
        found = find()
        if json_file is not None:
            json_file.write(to_json(found))
    text = to_json(found) if json_path == STDOUT else render(found, width=_width(), style=_style())
    with contextlib.suppress(BrokenPipeError):
        click.echo(text, nl=False)
    return 0


def _list(rows: dict[str, str]) -> None:
    """Names to the left, what they are to the right, both wrapped."""
    from dispersion.report.layout import paragraph

    column = min(max(map(len, rows)), _width() * 2 // 5)
    for name, about in rows.items():
        names = paragraph(name, column)
        words = paragraph(about, _width() - column - 4)
        for left, right in itertools.zip_longest(names, words, fillvalue=""):
            click.echo(f"  {left:<{column}}  {right}".rstrip())


def _run_dry(request: Request, json_file: OutputFile | None, csv_file: OutputFile | None) -> int:
    """Say what a check would read, in the same places; 3 if something asked for has no answer."""
    from dispersion.previewing import dry_run
    from dispersion.report.dry_run_report import dry_run_to_csv, dry_run_to_json, render_dry_run

    found = dry_run(
        _path(request.paths[0]),
        request.targets,
        coefficient=request.coefficient,
        retrieval=request.retrieval,
        sink_tokens=request.sink_tokens,
        layers=request.layers,
        heads=request.heads,
        offsets=request.offsets,
        inputs=request.inputs,
    )
    found = replace(found, source=request.paths[0])
    _put(
        request,
        (json_file, partial(dry_run_to_json, found)),
        (csv_file, partial(dry_run_to_csv, found)),
        partial(render_dry_run, found),
    )
    asked_and_left_out = bool(request.lengths and found.left_out)
    return 0 if found.complete and found.targets and not asked_and_left_out else 3


def _path(source: str) -> str | os.PathLike[str]:
    """The checkpoint that a name stands for."""
    if not source.startswith(DEMO):
        return source
    from dispersion import demo

    return demo.path(source.removeprefix(DEMO))


def _prepare(path: str | None, stack: contextlib.ExitStack) -> OutputFile | None:
    from dispersion.report.writing import OutputFile

    return None if path in (None, STDOUT) else stack.enter_context(OutputFile(path))


def _audit(request: Request) -> Audit:
    if len(request.paths) == 2:
        return _audit_pair(request)
    from dispersion.auditing import audit

    source = request.paths[0]
    with _progress(request) as progress, _executor(request) as executor:
        found = audit(
            _path(source),
            request.targets,
            coefficient=request.coefficient,
            retrieval=request.retrieval,
            sink_tokens=request.sink_tokens,
            layers=request.layers,
            heads=request.heads,
            offsets=request.offsets,
            inputs=request.inputs,
            budget=request.budget,
            jobs=request.jobs,
            executor=executor,
            resume=request.resume,
            device=request.device,
            progress=progress,
            announce=partial(_warn, request),
        )
    return replace(found, source=source)


def _audit_pair(request: Request) -> Audit:
    from dispersion.pairs import PairOptions, audit_pair

    options = PairOptions(
        query_heads=request.query_heads,
        key_heads=request.key_heads,
        scale=request.scale,
        rope=request.rope,
        input_norm=request.input_norm,
    )
    query_path, key_path = request.paths
    return audit_pair(
        query_path,
        key_path,
        request.targets or request.ask(DEFAULT_LENGTHS),
        options,
        heads=request.heads,
        offsets=request.offsets,
        budget=request.budget,
    )


@contextlib.contextmanager
def _executor(request: Request) -> Iterator[Executor | None]:
    """The cluster that was named, or None."""
    if request.scheduler is None:
        yield None
        return
    from dispersion.clusters import executor_at

    with executor_at(request.scheduler) as executor:
        yield executor


@contextlib.contextmanager
def _progress(request: Request) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar on stderr that counts layers; None where nobody would see it."""
    if request.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("layers"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("layers", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _write(
    audit: Audit, request: Request, json_file: OutputFile | None, csv_file: OutputFile | None
) -> None:
    from dispersion.report.csv_report import audit_to_csv
    from dispersion.report.json_report import audit_to_json
    from dispersion.report.terminal import render

    per_head = True if request.heads is not None else None
    _put(
        request,
        (json_file, partial(audit_to_json, audit)),
        (csv_file, partial(audit_to_csv, audit)),
        partial(render, audit, per_head=per_head),
    )


def _put(
    request: Request,
    as_json: tuple[OutputFile | None, Callable[[], str]],
    as_csv: tuple[OutputFile | None, Callable[[], str]],
    as_text: Callable[..., str],
) -> None:
    """Write JSON and CSV where they were asked for, and print one of them or the report."""
    for file, make in (as_json, as_csv):
        if file is not None:
            file.write(make())
    if request.json_path == STDOUT:
        text = as_json[1]()
    elif request.csv_path == STDOUT:
        text = as_csv[1]()
    else:
        text = as_text(width=_width(), style=_style())
    # The answer exists whether or not the reader of the pipe stays for it; so does the exit code.
    with contextlib.suppress(BrokenPipeError):
        click.echo(text, nl=False)


def _style() -> Style:
    from dispersion.report.layout import Style

    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return Style(colour=sys.stdout.isatty() and not plain)


def _width() -> int:
    return max(40, shutil.get_terminal_size().columns)
