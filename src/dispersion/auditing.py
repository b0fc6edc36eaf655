"""A checkpoint against its targets: every head, one layer's weights at a time."""

from __future__ import annotations

import os
import platform
import time
import uuid
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from dispersion.architectures import plan
from dispersion.checkpoint import Checkpoint, from_arrays, open_checkpoint
from dispersion.errors import ArgumentError
from dispersion.lengths import DEFAULT_LENGTHS
from dispersion.offsets import DEFAULT_BUDGET, estimated_seconds
from dispersion.partial import Partial
from dispersion.results import Audit
from dispersion.tasks import Work, heads_of, processors, run, worthwhile
from dispersion.token_inputs import check_tokens, skipped_for_tokens
from dispersion.verdict import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Executor

    from dispersion.architectures import Plan
    from dispersion.device import Device
    from dispersion.verdict import HeadResult, Retrieval


def audit(
    source: str | os.PathLike[str] | Mapping[str, Any],
    targets: Sequence[Target] | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    coefficient: float = 0.5,
    retrieval: Retrieval = "one",
    sink_tokens: int = 0,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    offsets: str = "free",
    inputs: str = "ball",
    budget: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    announce: Callable[[str], None] | None = None,
    jobs: int | None = None,
    executor: Executor | None = None,
    resume: str | os.PathLike[str] | None = None,
    device: str | None = None,
) -> Audit:
    """Certified answers for every attention head of a checkpoint.

    Args:
        source: a folder, a .safetensors, .index.json or .gguf file (any part of a split one), an
            address of one of them (https://, http://, hf://), or a state dict of arrays.
        targets: the questions; by default `coefficient` at 4K, 16K, 64K, 256K and 1M tokens, or at
            the longest learned position where the model has no more.
        config: the model's config.json as a mapping; with a state dict only.
        coefficient, retrieval, sink_tokens: for the default targets.
        layers, heads: only these indices; all by default.
        offsets: "free" (any rotation angles) or "exact" (the real offsets; slow).
        inputs: "ball" (any input that the norms let through) or "vocabulary" (real token ids,
            for layers that read the token embedding; the others are skipped).
        budget: seconds that "exact" may take in all, 600 by default; past it heads get the free
            bound and a note.
        progress: called with (layers done, layers in all).
        announce: called with remarks worth reading before a long computation.
        jobs: processes that share the layers; by default one for small models and for a state dict,
            else as many as there are processors.
        executor: any `concurrent.futures.Executor` whose workers can open `source`; runs one task a
            layer instead of processes of our own.
        resume: a file that keeps every finished layer (JSON lines). An audit that was interrupted
            goes on from it, with the same numbers; the file stays.
        device: where JAX (extra `jax`) multiplies the Gram matrices of projections, all heads of a
            layer at once: "cpu", "gpu", "tpu", or with an index, as in "gpu:1". The numbers are the
            same on every device, and as tight as without one. Every process opens it.

    Returns:
        The audit: a `HeadResult` per head, and every tensor that was skipped or refused.

    Raises:
        CheckpointError, UnsafeFileError: the checkpoint cannot be read or lies about itself.
        UnsupportedError: its family is not covered.
        OutputError: the resume file cannot be written.
        ArgumentError: an argument breaks its rule.

    """
    started = time.perf_counter()
    _check_inputs(inputs, offsets)
    _check_jobs(jobs)
    _check_resume(resume, source, inputs)
    opened = _device(device, inputs, jobs)
    checkpoint, name = _open(source, config)
    chosen = None if layers is None else frozenset(layers)
    found = plan(checkpoint, layers=chosen)
    asked, left_out = _targets(targets, found, partial(_ask, coefficient, retrieval, sink_tokens))
    only = None if heads is None else frozenset(heads)
    _check_heads(only, found)
    if isinstance(source, Mapping):
        jobs, executor = 1, None  # a state dict stays where it is
    count = jobs or (1 if opened and not opened.shared else worthwhile(found))
    if offsets == "exact":
        budget = DEFAULT_BUDGET if budget is None else budget
        if announce:
            announce(_forecast(found, asked, only, budget, count))
    skipped = found.skipped
    if inputs == "ball":
        work = Work(
            checkpoint=checkpoint,
            layers=chosen,
            targets=asked,
            heads=only,
            offsets=offsets,
            deadline=None if budget is None else time.time() + budget,
            run=uuid.uuid4().hex,
            device=device,
        )
        share = partial(run, found, work, jobs=count, executor=executor, progress=progress)
        if resume is None:
            results = share()
        else:
            with Partial(resume, work) as kept:
                results = share(partial=kept)
    else:
        results = list(_run_tokens(found, asked, only, progress))
        skipped = skipped_for_tokens(found)
    return Audit(
        source=name,
        model={"family": found.family, **found.model},
        targets=asked,
        heads=tuple(sorted(results, key=lambda r: (r.layer, r.module, r.head))),
        skipped=skipped,
        refused=found.refused,
        left_out=left_out,
        provenance=provenance(started, offsets, 1 if inputs == "vocabulary" else count)
        | {"format": checkpoint.format, "inputs": inputs, **checkpoint.origin}
        | ({"device": opened.provenance} if opened else {}),
    )


def provenance(started: float, offsets: str, jobs: int) -> dict[str, Any]:
    """How the numbers were made."""
    from threadpoolctl import threadpool_info

    kernels = {
        f"{lib.get('internal_api')} {lib.get('version')} {lib.get('architecture', '')}".strip()
        for lib in threadpool_info()
        if lib.get("user_api") == "blas"
    }
    return {
        "version": version("dispersion"),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "scipy": version("scipy"),
        "flint": version("python-flint"),
        "blas": ", ".join(sorted(kernels)),
        "offsets": offsets,
        "threads": 1,
        "jobs": jobs,
        "seconds": round(time.perf_counter() - started, 3),
    }


def _open(
    source: str | os.PathLike[str] | Mapping[str, Any], config: Mapping[str, Any] | None
) -> tuple[Checkpoint, str]:
    if isinstance(source, Mapping):
        if config is None:
            msg = "config must come with a state dict (the model's config.json). Got None."
            raise ArgumentError(msg)
        return from_arrays(source, dict(config)), "state dict"
    if not isinstance(source, (str, os.PathLike)):
        got = "None" if source is None else f"{type(source).__name__}"
        msg = (
            "source must be the path of a folder, .safetensors, .index.json or .gguf file, or a "
            f"mapping from tensor names to arrays. Got {got}."
        )
        raise ArgumentError(msg)
    if config is not None:
        msg = "config goes with a state dict; a checkpoint on disk has its own. Got both."
        raise ArgumentError(msg)
    return open_checkpoint(source), os.fspath(source)


def _targets(
    targets: Sequence[Target] | None, found: Plan, ask: Callable[[int], Target]
) -> tuple[tuple[Target, ...], tuple[tuple[int, str], ...]]:
    most = found.learned_positions
    if targets is None:
        fitting = [n for n in DEFAULT_LENGTHS if most is None or n <= most]
        if not fitting and most is not None:
            fitting = [most]
        chosen = tuple(map(ask, fitting))
        return chosen, _past(DEFAULT_LENGTHS, most)
    if not targets:
        msg = "targets must name at least one question. Got none."
        raise ArgumentError(msg)
    kept = tuple(t for t in targets if most is None or t.length <= most)
    return kept, _past((t.length for t in targets), most)


def _ask(coefficient: float, retrieval: Retrieval, sink_tokens: int, length: int) -> Target:
    return Target(length, coefficient, retrieval, sink_tokens)


def _past(lengths: Iterable[int], most: int | None) -> tuple[tuple[int, str], ...]:
    """The lengths beyond a model's learned positions, each once, with the reason."""
    if most is None:
        return ()
    reason = f"the model has learned positions for {most} tokens only"
    return tuple((n, reason) for n in dict.fromkeys(lengths) if n > most)


def _check_heads(only: frozenset[int] | None, found: Plan) -> None:
    most = max((layer.query_heads for layer in found.layers), default=0)
    wrong = sorted(h for h in only or () if not 0 <= h < most)
    if wrong:
        msg = f"heads must lie in 0..{most - 1} for this model. Got {wrong[0]}."
        raise ArgumentError(msg)


def _check_jobs(jobs: int | None) -> None:
    if jobs is not None and jobs < 1:
        msg = f"jobs must be at least 1. Got {jobs}."
        raise ArgumentError(msg)


def _device(name: str | None, inputs: str, jobs: int | None) -> Device | None:
    """The device, opened before anything else is, so that a wrong name costs no time."""
    if name is None:
        return None
    if inputs != "ball":
        msg = f"device goes with inputs 'ball'. Got inputs {inputs!r}."
        raise ArgumentError(msg)
    if not isinstance(name, str):
        msg = f"device must be a name, as in 'gpu' or 'gpu:1'. Got {type(name).__name__}."
        raise ArgumentError(msg)
    from dispersion.device import open_device

    opened = open_device(name)
    if not opened.shared and jobs is not None and jobs > 1:
        msg = f"jobs must be 1 with device {name!r}, which one process has for itself. Got {jobs}."
        raise ArgumentError(msg)
    return opened


def _check_resume(resume: object, source: object, inputs: str) -> None:
    if resume is None:
        return
    if isinstance(source, Mapping):
        msg = "resume goes with a checkpoint that has a path or address. Got a state dict."
        raise ArgumentError(msg)
    if inputs != "ball":
        msg = f"resume goes with inputs 'ball'. Got inputs {inputs!r}."
        raise ArgumentError(msg)


def _check_inputs(inputs: str, offsets: str) -> None:
    if inputs not in ("ball", "vocabulary"):
        msg = f"inputs must be 'ball' or 'vocabulary'. Got {inputs!r}."
        raise ArgumentError(msg)
    if inputs == "vocabulary" and offsets != "free":
        msg = (
            "offsets must be 'free' with inputs 'vocabulary', whose bounds hold at any rotation "
            f"angles. Got {offsets!r}."
        )
        raise ArgumentError(msg)


def _run_tokens(
    found: Plan,
    targets: tuple[Target, ...],
    only: frozenset[int] | None,
    progress: Callable[[int, int], None] | None,
) -> Iterator[HeadResult]:
    """Layers that read the token embedding; heads in turn, their large products in parallel."""
    from threadpoolctl import threadpool_limits

    layers = [layer for layer in found.layers if layer.embedding is not None]
    if not targets:
        return
    with threadpool_limits(processors(), user_api="blas"):
        for done, layer in enumerate(layers):
            if progress:
                progress(done, len(layers))
            yield from check_tokens(layer, targets, heads=only)
        if progress:
            progress(len(layers), len(layers))


def _forecast(
    found: Plan, targets: Sequence[Target], only: frozenset[int] | None, budget: float, jobs: int
) -> str:
    """How long exact offsets will take, judged from the first rotated head."""
    lengths = [target.length for target in targets]
    for layer in found.layers:
        for _, head in heads_of(layer, only):
            if head.bounded and head.rotary is not None and not head.rotary.placed and lengths:
                heads = sum(len(only) if only else one.query_heads for one in found.layers)
                seconds = estimated_seconds(head, lengths) * heads / jobs
                return (
                    f"exact offsets: about {seconds:.2g} s for {heads} heads, pairs of offsets not "
                    f"counted; past {budget:g} s in all, heads get the free bound"
                )
    return "exact offsets: no head is rotated, so offsets make no difference"
