"""Attention with factors behind both norm and rotation: every position has the same two balls.

A normalised query, turned, is any normalised query again, and what multiplies its coordinates then
does not turn with it. So the balls are what is left, and no rotation (as in HunYuan V1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dispersion.architectures.attention import Attention
from dispersion.checkpoint import to_float64
from dispersion.head import Head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dispersion.architectures.attention import Projection
    from dispersion.checkpoint import Checkpoint
    from dispersion.head import BallImage

    Ball = Callable[[Checkpoint, int], BallImage]


@dataclass(frozen=True, kw_only=True)
class StillAttention(Attention):
    """One layer; `query_ball` and `key_ball` give the ball of a head from the file and its index.

    `more` are the tensors that those balls are made of, besides projections and norms, and their
    shapes. What inputs reach is not known.
    """

    query_ball: Ball
    key_ball: Ball
    more: Mapping[str, tuple[int, ...]]

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        return {**super().tensors, **self.more}

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, kv_head, Head); heads of one kv head share its ball.

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        for norm in (self.input_norm, self.query.norm, self.key.norm):
            if norm is not None and norm.gain is not None:
                to_float64(checkpoint.read(norm.gain), tensor=norm.gain)
        group = self.query.heads // self.key.heads
        for kv_head in range(self.key.heads):
            self._check(checkpoint, self.key, kv_head)
            key = self.key_ball(checkpoint, kv_head)
            for head in range(kv_head * group, (kv_head + 1) * group):
                self._check(checkpoint, self.query, head)
                query = self.query_ball(checkpoint, head)
                yield head, kv_head, Head(query, key, self.scale, window=self.window)

    def _check(self, checkpoint: Checkpoint, side: Projection, head: int) -> None:
        """Read a projection, which a norm makes immaterial, so that a nan in it is found."""
        part = slice(head * self.head_dim, (head + 1) * self.head_dim)
        for name in (side.weight, side.bias):
            if name is not None:
                to_float64(checkpoint.read(name, part), tensor=name, first_row=part.start)
