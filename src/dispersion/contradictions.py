"""Options of ``dispersion check`` that do not go together."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dispersion.errors import ArgumentError
from dispersion.lengths import DEFAULT_LENGTHS

if TYPE_CHECKING:
    from dispersion.commands import Request

DEMO = "demo:"
STDOUT = "-"


def refuse_contradictions(request: Request) -> None:
    """Refuse a request that contradicts itself.

    Raises:
        ArgumentError: the message names the options.
    """
    given = {
        "--query-heads": request.query_heads,
        "--key-heads": request.key_heads,
        "--scale": request.scale,
        "--rope": request.rope,
        "--input-norm": request.input_norm,
    }
    if len(request.paths) == 1:
        for option, value in given.items():
            if value is not None:
                msg = f"{option} goes with two weight files; a checkpoint says it itself."
                raise ArgumentError(msg)
    elif request.layers is not None:
        msg = "--layers goes with a checkpoint; two weight files are one layer."
        raise ArgumentError(msg)
    if request.dry_run and len(request.paths) == 2:
        msg = "--dry-run goes with a checkpoint; two weight files are read whole."
        raise ArgumentError(msg)
    if request.inputs == "vocabulary" and len(request.paths) == 2:
        msg = "--inputs vocabulary goes with a checkpoint; two weight files hold no embedding."
        raise ArgumentError(msg)
    if request.inputs == "vocabulary" and request.offsets == "exact":
        msg = "--inputs vocabulary goes with --offsets free: its bounds hold at any angles."
        raise ArgumentError(msg)
    if "" in request.paths:
        msg = "CHECKPOINT must name a file or folder. Got an empty name."
        raise ArgumentError(msg)
    shortest = min(request.lengths or DEFAULT_LENGTHS)
    if request.sink_tokens > shortest:
        msg = (
            "--sink-tokens must not exceed --length. "
            f"Got {request.sink_tokens} of {shortest} tokens."
        )
        raise ArgumentError(msg)
    demos = [path for path in request.paths if path.startswith(DEMO)]
    if demos and len(request.paths) > 1:
        msg = f"two arguments are weight files; check one checkpoint at a time. Got {demos[0]}."
        raise ArgumentError(msg)
    if request.budget is not None and request.budget != request.budget:
        msg = "--budget must be a number of seconds. Got nan."
        raise ArgumentError(msg)
    if request.budget is not None and request.offsets != "exact":
        msg = "--budget goes with --offsets exact."
        raise ArgumentError(msg)
    for name, chosen in (
        ("jobs", request.jobs),
        ("scheduler", request.scheduler),
        ("resume", request.resume),
        ("device", request.device),
    ):
        if chosen is not None and (len(request.paths) == 2 or request.inputs == "vocabulary"):
            msg = f"--{name} goes with one checkpoint and --inputs ball, whose layers are shared."
            raise ArgumentError(msg)
    if request.jobs is not None and request.scheduler is not None:
        msg = "--jobs and --scheduler do not go together: the cluster has its own workers."
        raise ArgumentError(msg)
    outputs = [p for p in (request.json_path, request.csv_path) if p]
    if request.resume and os.path.realpath(request.resume) in map(os.path.realpath, outputs):
        msg = f"--resume must name a file of its own. Got {request.resume!r} twice."
        raise ArgumentError(msg)
    if request.json_path and request.csv_path:
        if request.json_path == request.csv_path == STDOUT:
            msg = "--json and --csv cannot both be -; name a file for one of them."
            raise ArgumentError(msg)
        if os.path.realpath(request.json_path) == os.path.realpath(request.csv_path):
            msg = f"--json and --csv must name two files. Got {request.json_path!r} twice."
            raise ArgumentError(msg)
