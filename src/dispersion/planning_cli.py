"""``dispersion bound`` and ``dispersion plan``: their options and what they run."""

from __future__ import annotations

from typing import Any

import click

from dispersion.errors import ArgumentError
from dispersion.lengths import DEFAULT_LENGTHS
from dispersion.options import lengths_option, read_lengths, reading

_JSON = click.option(
    "--json", "json_path", metavar="FILE", help="Write JSON to FILE, or - for stdout."
)


@click.command(short_help="Solve for what is missing among length, spread and share of a row.")
@click.option(
    "--length",
    "lengths",
    callback=reading(read_lengths),
    metavar="N",
    help="Unmasked items in the row: 32768, 32K or 1M (K=1024, M=1024²).",
)
@click.option("--spread", type=float, metavar="D", help="Largest logit minus smallest.")
@click.option(
    "--norm",
    type=float,
    metavar="S",
    help="2-norm of the logits minus their mean, instead of a spread or beside it.",
)
@click.option("--target", "coefficient", type=float, metavar="P", help="Share asked for.")
@click.option(
    "--items",
    "--sink-tokens",
    "items",
    type=click.IntRange(min=1),
    default=1,
    metavar="M",
    help="The share is that of M items together. Default: 1.",
)
@click.option(
    "--temperature",
    type=float,
    default=1.0,
    metavar="T",
    help="Divides the logits, after any cap. Default: 1.",
)
@click.option(
    "--soft-cap",
    type=float,
    metavar="C",
    help="Logits are C·tanh(z/C), and the spread is that of z.",
)
@_JSON
def bound(lengths: tuple[int, ...] | None, json_path: str | None, **options: Any) -> int:
    """Solve for what is missing among the length, spread and share of one attention row.

    Of --length, --spread (or --norm, or --soft-cap) and --target give two for the third, or all
    three for whether the share can be reached. Each number comes with its theorem and is proved:
    upper bounds are rounded up, lower bounds down.

    \b
    Examples: dispersion bound --length 32K --spread 10
              dispersion bound --length 32K --target 0.5
              dispersion bound --spread 10 --target 0.5 --temperature 0.7
    """  # noqa: D301 - click reads the backspace itself
    if lengths is not None and len(lengths) > 1:
        msg = f"--length takes one length here. Got {len(lengths)}."
        raise click.UsageError(msg)
    from dispersion.bounding import Row, bound_row
    from dispersion.commands import publish
    from dispersion.report.bound_report import bound_to_json, render_bound

    row = Row(length=lengths[0] if lengths else None, **options)
    return publish(lambda: bound_row(row), render_bound, bound_to_json, json_path)


@click.command(short_help="Bound a head that does not exist yet, and solve for what it takes.")
@click.option("--head-dim", type=int, required=True, metavar="D", help="Width of queries and keys.")
@click.option(
    "--norm",
    type=click.Choice(["headwise", "layerwise", "l2", "none"]),
    default="headwise",
    help="QK norm: root mean square over a head or over all heads, 2-norm, or none. "
    "Default: headwise.",
)
@click.option(
    "--gain",
    type=float,
    metavar="G",
    help="Largest product of a query and a key gain (over rotated pairs under rotary "
    "positions). Default: 1.",
)
@click.option("--query-gain", type=float, metavar="G", help="Largest query gain, not with --gain.")
@click.option("--key-gain", type=float, metavar="G", help="Largest key gain, not with --gain.")
@click.option(
    "--heads", type=int, metavar="H", help="Heads of the layer, to compare norms or for layerwise."
)
@click.option("--key-heads", type=int, metavar="H", help="Key heads of the layer. Default: all.")
@click.option(
    "--scale",
    type=float,
    metavar="S",
    help="Factor on the logits. Default: 1/√D, or 1 for --norm l2.",
)
@click.option(
    "--sigma",
    type=float,
    metavar="X",
    help="--norm none: largest singular value of the joint matrix, scale included.",
)
@click.option("--spread", type=float, metavar="X", help="--norm none: twice sigma, instead of it.")
@click.option("--rank", type=int, metavar="R", help="Directions that queries use. Default: D.")
@click.option(
    "--schedule",
    metavar="NAME",
    help="Factor on logits at length n: constant:C, log:C, sqrt-log, yarn:L (L the trained "
    "length) or llama4:A,L. Default: constant:1.",
)
@click.option("--soft-cap", type=float, metavar="C", help="Logits are C·tanh(z/C).")
@click.option(
    "--sink",
    type=float,
    metavar="B",
    help="Logit of a sink, as the softmax sees it; 0 is softmax-off-by-one.",
)
@click.option(
    "--window",
    callback=reading(read_lengths),
    metavar="W",
    help="Sliding window in tokens.",
)
@click.option(
    "--temperature",
    type=float,
    default=1.0,
    metavar="T",
    help="Divides the logits, after any cap. Default: 1.",
)
@lengths_option(
    "--length",
    "lengths",
    "Tokens in the row: 32768, 32K or 1M. Repeat or separate by commas. "
    "Default: 4K,16K,64K,256K,1M.",
)
@click.option(
    "--target",
    "coefficient",
    type=float,
    default=0.5,
    metavar="P",
    help="Share of attention that a token is to get. Default: 0.5.",
)
@click.option(
    "--retrieval",
    type=click.Choice(["one", "any", "both"]),
    default="both",
    help="one: a privileged token. any: every token of a context. Default: both.",
)
@_JSON
def plan(json_path: str | None, **options: Any) -> int:
    """Bound a head that does not exist yet, and solve for what a target takes.

    For each length: ceilings on the share of one token and of any token, the capacity, and the
    least entropy. For the longest: the gain, temperature, log-length factor or width that the
    target takes, one at a time.

    \b
    Examples: dispersion plan --head-dim 128 --length 128K
              dispersion plan --head-dim 64 --schedule log:0.1 --sink 0
              dispersion plan --head-dim 64 --norm layerwise --heads 8
    """  # noqa: D301 - click reads the backspace itself
    from dispersion.commands import publish
    from dispersion.planned import RETRIEVALS
    from dispersion.planning import plan_head
    from dispersion.report.plan_json import plan_to_json
    from dispersion.report.plan_report import render_plan
    from dispersion.verdict import Target

    coefficient, retrieval = options.pop("coefficient"), options.pop("retrieval")
    targets = [
        Target(length, coefficient, retrieval=kind)
        for length in options.pop("lengths") or DEFAULT_LENGTHS
        for kind in RETRIEVALS
        if retrieval in (kind, "both")
    ]
    head = _planned_head(**options)
    return publish(lambda: plan_head(head, targets), render_plan, plan_to_json, json_path)


def _planned_head(
    *,
    gain: float | None,
    query_gain: float | None,
    key_gain: float | None,
    spread: float | None,
    schedule: str | None,
    window: tuple[int, ...] | None,
    **numbers: Any,
) -> Any:
    from dispersion.balls import product
    from dispersion.planned import PlannedHead
    from dispersion.schedules import CONSTANT, parse_schedule

    if window is not None and len(window) > 1:
        msg = f"--window takes one length. Got {len(window)}."
        raise ArgumentError(msg)
    parts = [part for part in (query_gain, key_gain) if part is not None]
    if gain is not None and parts:
        msg = "--gain is the product of --query-gain and --key-gain; give one or the others."
        raise ArgumentError(msg)
    if spread is not None:
        if numbers["sigma"] is not None:
            msg = "--spread is twice --sigma; give one of them."
            raise ArgumentError(msg)
        numbers["sigma"] = spread / 2
    return PlannedHead(
        gain=product(*parts) if parts else 1.0 if gain is None else gain,
        window=None if window is None else window[0],
        schedule=CONSTANT if schedule is None else parse_schedule(schedule),
        **numbers,
    )
