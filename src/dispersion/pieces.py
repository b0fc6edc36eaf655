"""Layers that wait to be checked, cut into pieces where there are fewer than processes."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dispersion.architectures import LayerPlan
    from dispersion.verdict import HeadResult

_MOST = 4
"""Pieces of a layer; each passes over the heads before its own, at a few per cent of their cost."""


@dataclass(frozen=True)
class Piece:
    """Heads of the layer at `index` of a plan, by their places in `LayerPlan.heads`.

    Attributes:
        index: the layer's.
        first, last: the first place and that behind the last one; None for all there are.

    """

    index: int
    first: int = 0
    last: int | None = None


class Pieces:
    """What several processes take from both ends until nothing waits.

    Args:
        layers: of the plan.
        indices: those to be checked.
        jobs: how many processes take from it.

    """

    def __init__(self, layers: Sequence[LayerPlan], indices: Iterable[int], jobs: int) -> None:
        self._layers, self._jobs = layers, jobs
        self._waiting = deque(Piece(index) for index in indices)
        self._open = {piece.index: 1 for piece in self._waiting}
        self._done: dict[int, list[tuple[int, list[HeadResult]]]] = defaultdict(list)
        self._lock = Lock()

    @property
    def unfinished(self) -> bool:
        """Whether a layer is not finished, be it that somebody is at work on it."""
        return bool(self._open)

    @property
    def waiting(self) -> bool:
        """Whether there is something to take."""
        return bool(self._waiting)

    def take(self, *, last: bool = False) -> Piece | None:
        """The first piece, or the last, which waits no more; None where none does."""
        with self._lock:
            if not self._waiting:
                return None
            piece = self._waiting.pop() if last else self._waiting.popleft()
            middle = self._middle(piece)
            if middle is not None and len(self._waiting) < self._jobs - 1:
                self._waiting.append(Piece(piece.index, middle, piece.last))
                self._open[piece.index] += 1
                piece = Piece(piece.index, piece.first, middle)
            return piece

    def give_back(self, piece: Piece) -> None:
        """Let a piece that was taken wait again."""
        with self._lock:
            self._waiting.append(piece)

    def finish(self, piece: Piece, heads: list[HeadResult]) -> list[HeadResult] | None:
        """Note what was found; all heads of its layer if this was the last of its pieces."""
        with self._lock:
            done = self._done[piece.index]
            done.append((piece.first, heads))
            self._open[piece.index] -= 1
            if self._open[piece.index]:
                return None
            del self._open[piece.index], self._done[piece.index]
        return [head for _, some in sorted(done, key=lambda part: part[0]) for head in some]

    def clear(self) -> None:
        """Let nothing wait any more."""
        self._waiting.clear()

    def _middle(self, piece: Piece) -> int | None:
        """The place at which to cut a piece in two, between heads that share a key."""
        layer = self._layers[piece.index]
        last = layer.query_heads if piece.last is None else piece.last
        group = max(1, layer.query_heads // max(1, layer.key_heads))
        middle = (piece.first + last) // 2 // group * group
        small = (last - piece.first) * _MOST <= layer.query_heads
        return None if small or middle <= piece.first else middle
