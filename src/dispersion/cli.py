"""The command line: ``check`` and ``families``; the others are in files named …_cli.py.

Exit codes, highest first: 2 for usage and for input or output that cannot be used; 3 when
something asked for could not be checked; 1 when a ``--fail-on`` verdict occurred; 0 otherwise.
Nothing heavy is imported before a command needs it, so that ``--help`` is quick.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from dispersion.errors import DispersionError
from dispersion.figures_cli import figures
from dispersion.measuring_cli import measure
from dispersion.options import lengths_option, read_indices, read_verdicts, reading
from dispersion.planning_cli import bound, plan
from dispersion.proving_cli import prove
from dispersion.records_cli import correlate, records

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; errors are one line on stderr."""
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        code = cli.main(arguments, prog_name="dispersion", standalone_mode=False)
        sys.stdout.flush()
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "dispersion"
        return _fail(f"{error.format_message()} See '{command} --help'.", 2)
    except click.ClickException as error:
        return _fail(error.format_message(), 2)
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", INTERRUPTED)
    except DispersionError as error:
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:
        code = 0
    except SystemExit:  # click's way out of a broken pipe
        code = 0
    except OSError as error:
        # Files have messages of their own: what is left is the standard output.
        _silence_stdout()
        return _fail(f"standard output cannot be written ({error.strerror or error}).", 2)
    _finish_stdout()
    return code if isinstance(code, int) else 0


def _open_streams() -> None:
    """Give the process the streams it was started without; their text goes nowhere."""
    # A daemon may close them. Results then live in the files that were asked for.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115


def _fail(message: str, code: int) -> int:
    from dispersion.report.layout import clean

    with contextlib.suppress(BrokenPipeError):
        click.echo(f"error: {clean(' '.join(message.split()))}", err=True)
    return code


def _finish_stdout() -> None:
    """Flush; where nobody reads any more, keep the interpreter from complaining at its end."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()


def _silence_stdout() -> None:
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"dispersion {version('dispersion')}")
        ctx.exit()


@click.group(
    invoke_without_command=True,
    epilog="Example: dispersion check demo:headwise",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Print the version.",
)
@click.pass_context
def cli(ctx: click.Context) -> int | None:
    """Bound how much attention a head can put on one token, from weights alone.

    The answers are certificates: proofs in outward-rounded arithmetic.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        return 2
    return None


@cli.command(short_help="Bound the attention heads of a checkpoint, or of two weight files.")
@click.argument("paths", nargs=-1, metavar="CHECKPOINT | W_Q W_K")
@lengths_option(
    "--length",
    "lengths",
    "Tokens in the row: 32768, 32K or 1M (K=1024, M=1024²). Repeat or separate by commas. "
    "Default: 4K,16K,64K,256K,1M.",
)
@click.option(
    "--target",
    "coefficient",
    type=float,
    default=0.5,
    metavar="P",
    help="Share of attention that one token is to get. Default: 0.5.",
)
@click.option(
    "--retrieval",
    type=click.Choice(["one", "any"]),
    default="one",
    help="one: can some token get the share? any: can every token of one context, each from a "
    "query of its own? Default: one.",
)
@click.option(
    "--sink-tokens",
    type=click.IntRange(min=0),
    default=0,
    metavar="M",
    help="Ask whether M tokens together can get the share.",
)
@click.option(
    "--layers",
    callback=reading(read_indices),
    metavar="I",
    help="Only these layers, such as 0,3-5.",
)
@click.option(
    "--heads",
    callback=reading(read_indices),
    metavar="I",
    help="Only these heads of each layer, such as 0,3-5.",
)
@click.option(
    "--offsets",
    type=click.Choice(["free", "exact"]),
    default="free",
    help="free: bound over any rotation angles (fast). exact: over the real offsets. "
    "Default: free.",
)
@click.option(
    "--inputs",
    type=click.Choice(["ball", "vocabulary"]),
    default="ball",
    help="ball: whatever the norms let through. vocabulary: real token ids, for layers that read "
    "the token embedding. Default: ball.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time for --offsets exact in all; past it heads get the free bound. Default: 600.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes that share the layers. Default: one for small models, else one a processor.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="A running Dask cluster that shares the layers instead, such as tcp://HOST:8786.",
)
@click.option(
    "--resume",
    metavar="FILE",
    help="Keep every finished layer in FILE, and go on from what it holds.",
)
@click.option(
    "--device",
    metavar="DEVICE",
    help="Multiply large matrices there by JAX: cpu, gpu, tpu or, say, gpu:1.",
)
@click.option("--json", "json_path", metavar="FILE", help="Write JSON to FILE, or - for stdout.")
@click.option("--csv", "csv_path", metavar="FILE", help="Write CSV to FILE, or - for stdout.")
@click.option(
    "--fail-on",
    callback=reading(read_verdicts),
    multiple=True,
    metavar="VERDICT",
    help="Exit with 1 if this verdict occurs: ruled_out, witnessed, unresolved or unbounded. "
    "Repeatable.",
)
@click.option(
    "--dry-run", is_flag=True, help="Say what would be read and checked; read no weights."
)
@click.option("--quiet", is_flag=True, help="No progress and no warnings on stderr.")
@click.option(
    "--query-heads",
    type=click.IntRange(min=1),
    metavar="H",
    help="Weight files: heads stacked in W_Q. Default: 1.",
)
@click.option(
    "--key-heads",
    type=click.IntRange(min=1),
    metavar="H",
    help="Weight files: heads stacked in W_K. Default: its rows by head_dim.",
)
@click.option(
    "--scale",
    type=float,
    metavar="S",
    help="Weight files: factor on the logits. Default: 1/√head_dim.",
)
@click.option(
    "--rope",
    type=float,
    metavar="THETA",
    help="Weight files: rotary positions with this base. Default: no rotation.",
)
@click.option(
    "--input-norm",
    type=float,
    metavar="R",
    help="Weight files: largest 2-norm of an input. Without it heads are unbounded.",
)
def check(paths: tuple[str, ...], **options: Any) -> int:
    """Say which attention heads can, cannot or may put a share of their attention on one token.

    CHECKPOINT is a folder, a .safetensors or a .gguf file, demo:NAME for a bundled one, or an
    address: hf://ORG/MODEL@REVISION or https://… of a folder, a .safetensors or .gguf file.
    W_Q and W_K are .npy, .npz or .safetensors files that hold one matrix each, [out, in].

    \b
    Exit codes: 0 all checked, 1 a --fail-on verdict, 2 bad usage or input,
    3 something asked for could not be checked.

    \b
    Examples: dispersion check demo:headwise --length 32K --target 0.9
              dispersion check wq.npy wk.npy --input-norm 24
    """  # noqa: D301 - click reads the backspace itself
    if not 1 <= len(paths) <= 2:
        msg = f"name one checkpoint or two weight files. Got {len(paths)} paths."
        raise click.UsageError(msg)
    from dispersion.commands import Request, run_check

    return run_check(Request(paths=paths, **options))


@cli.command(short_help="List the model families whose checkpoints can be read.")
def families() -> None:
    """List the model families whose checkpoints can be read.

    Example: dispersion families
    """
    from dispersion.commands import run_families

    run_families()


cli.add_command(bound)
cli.add_command(measure)
cli.add_command(records)
cli.add_command(correlate)
cli.add_command(plan)
cli.add_command(prove)
cli.add_command(figures)
