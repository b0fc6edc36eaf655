"""Layers as independent tasks: in this process, in several, or on any executor.

A task is a `Work` and the index of a layer. A checkpoint knows where its bytes are and does not
carry them, so that only names and answers travel; every process keeps BLAS to one thread, so that
the numbers do not depend on how many there are.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from concurrent.futures import BrokenExecutor, as_completed
from dataclasses import dataclass
from itertools import islice
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from dispersion.architectures import plan
from dispersion.checking import Place, check_head
from dispersion.pieces import Piece, Pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor, Future

    from dispersion.architectures import LayerPlan, Plan
    from dispersion.checkpoint import Checkpoint
    from dispersion.partial import Partial
    from dispersion.verdict import HeadResult, Target

    Progress = Callable[[int, int], None] | None

_PLANS: dict[str, Plan] = {}
"""The plan of the run at hand, made once in a process."""
_IDLE = 20.0
"""Seconds after which a worker without work ends."""
_WORTHWHILE = 2**20
"""Heads × head_dim² below which starting processes costs more than it saves."""


@dataclass(frozen=True)
class Work:
    """What every layer of one audit is asked; small, and can be sent anywhere.

    Attributes:
        checkpoint: the opened checkpoint, whose files every worker can read.
        layers: the layers of the plan; all where None.
        targets: the questions.
        heads: only these heads; all where None.
        offsets: "free" or "exact".
        deadline: seconds since the epoch past which exact offsets give way to free ones, or None.
        run: a name of this audit, under which a worker keeps its plan.
        device: where Gram matrices are multiplied (device.py), opened by every worker; None for
            this package's own CPU code.

    """

    checkpoint: Checkpoint
    layers: frozenset[int] | None
    targets: tuple[Target, ...]
    heads: frozenset[int] | None
    offsets: str
    deadline: float | None
    run: str
    device: str | None = None


def run(
    found: Plan,
    work: Work,
    *,
    jobs: int,
    executor: Executor | None = None,
    partial: Partial | None = None,
    progress: Progress = None,
) -> list[HeadResult]:
    """All heads of a plan, in no particular order.

    Args:
        found: the plan that `work` describes.
        work: what is asked.
        jobs: processes.
        executor: runs the tasks instead, where given.
        partial: layers that are done already; the others are added as they are finished.
        progress: called with (layers done, layers in all).

    """
    total = len(found.layers)
    if not work.targets or not total:
        return []
    known = [None if partial is None else partial.finished(layer) for layer in found.layers]
    results = [head for heads in known if heads is not None for head in heads]
    missing = [index for index, heads in enumerate(known) if heads is None]
    if progress:
        progress(total - len(missing), total)
    if executor is not None:
        layers = _submitted(executor, work, missing)
    elif min(jobs, len(missing)) > 1:
        layers = _in_processes(found, work, missing, min(jobs, len(missing)))
    else:
        layers = ((index, check_layer(found.layers[index], work)) for index in missing)
    for done, (index, heads) in enumerate(layers, total - len(missing) + 1):
        if partial is not None:
            partial.add(found.layers[index], heads)
        results += heads
        if progress:
            progress(done, total)
    return results


def worthwhile(found: Plan) -> int:
    """The number of processes that pays off for a plan."""
    cost = sum(layer.query_heads * layer.head_dim**2 for layer in found.layers)
    # A daemonic process may have no children.
    if cost < _WORTHWHILE or multiprocessing.current_process().daemon:
        return 1
    return min(processors(), len(found.layers))


def processors() -> int:
    """How many processors this process may use."""
    from loky import cpu_count

    return int(cpu_count())


def heads_of(
    layer: LayerPlan, only: frozenset[int] | None, piece: Piece | None = None
) -> Iterator[tuple[Place, Any]]:
    """The heads of a layer that were asked for, with the names that their results carry."""
    heads = layer.heads()
    for index, kv_head, head in heads if piece is None else islice(heads, piece.first, piece.last):
        if only is None or index in only:
            yield Place(layer.module, layer.layer, index, kv_head), head


def check_layer(layer: LayerPlan, work: Work, piece: Piece | None = None) -> list[HeadResult]:
    """The heads of one layer, or of a piece of it, one after the other."""
    from threadpoolctl import threadpool_limits

    found = []
    # Small matrices gain nothing from a threaded BLAS.
    with threadpool_limits(1, user_api="blas"):
        for place, head in _multiplied(heads_of(layer, work.heads, piece), work.device):
            rest = None if work.deadline is None else max(0.0, work.deadline - time.time())
            found.append(
                check_head(head, work.targets, place=place, offsets=work.offsets, budget=rest)
            )
    return found


def _multiplied(
    heads: Iterator[tuple[Place, Any]], name: str | None
) -> Iterator[tuple[Place, Any]]:
    if name is None:
        return heads
    from dispersion.device import open_device, with_grams

    return with_grams(heads, open_device(name))


def check_task(work: Work, piece: Piece) -> list[HeadResult]:
    """One task, in whatever process it runs: a layer of the plan, or a piece of one."""
    found = _PLANS.get(work.run)
    if found is None:
        found = plan(work.checkpoint, layers=work.layers)
        _PLANS.clear()
        _PLANS[work.run] = found
    return check_layer(found.layers[piece.index], work, piece)


def _in_processes(
    found: Plan, work: Work, indices: Sequence[int], jobs: int
) -> Iterator[tuple[int, list[HeadResult]]]:
    """The heads of some layers, by this process and `jobs` − 1 others.

    What a dying process takes along is done here.
    """
    from loky import ProcessPoolExecutor

    pieces = Pieces(found.layers, indices, jobs)
    sent: dict[Future[list[HeadResult]], Piece] = {}
    finished: SimpleQueue[Future[list[HeadResult]] | None] = SimpleQueue()
    # Idle workers end by themselves, also those whose parent was killed.
    executor = ProcessPoolExecutor(max_workers=jobs - 1, timeout=_IDLE)

    def send() -> None:
        piece = pieces.take()
        if piece is None:
            return
        try:
            future = executor.submit(check_task, work, piece)
        except RuntimeError:  # the workers are gone
            pieces.give_back(piece)
            finished.put(None)
        else:
            sent[future] = piece
            future.add_done_callback(receive)

    def receive(future: Future[list[HeadResult]]) -> None:
        # Called by the executor's thread, while this process is busy with heads of its own. No
        # worker has a second task in hand, which nobody could take back when the end is near.
        finished.put(future)
        if not future.cancelled() and future.exception() is None:
            send()

    def here(piece: Piece) -> Iterator[tuple[int, list[HeadResult]]]:
        return whole(piece, check_layer(found.layers[piece.index], work, piece))

    def whole(piece: Piece, heads: list[HeadResult]) -> Iterator[tuple[int, list[HeadResult]]]:
        every = pieces.finish(piece, heads)
        if every is not None:
            yield piece.index, every

    try:
        for _ in range(jobs - 1):
            send()
        while pieces.unfinished:
            own = pieces.take(last=True)
            if own is not None:
                yield from here(own)
            while pieces.unfinished and not (pieces.waiting and finished.empty()):
                future = finished.get()
                if future is not None:
                    heads = future.result()
                    yield from whole(sent.pop(future), heads)
    except BrokenExecutor:
        executor.shutdown(wait=True)  # nothing is sent any more
        for piece in list(sent.values()):
            yield from here(piece)
        while (own := pieces.take()) is not None:
            yield from here(own)
    finally:
        pieces.clear()
        for future in list(sent):
            future.cancel()
        # Workers without work need nobody who waits for their end.
        executor.shutdown(wait=pieces.unfinished)


def _submitted(
    executor: Executor, work: Work, indices: Sequence[int]
) -> Iterator[tuple[int, list[HeadResult]]]:
    """The heads of some layers, by an executor that somebody else owns."""
    sent = {executor.submit(check_task, work, Piece(index)): index for index in indices}
    try:
        for future in as_completed(sent):
            yield sent[future], future.result()
    finally:
        for future in sent:
            with contextlib.suppress(Exception):
                future.cancel()
