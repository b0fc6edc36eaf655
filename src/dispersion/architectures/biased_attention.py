"""One attention layer whose logits get a bias from a table of distances, stored in the file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dispersion.architectures.attention import Attention
from dispersion.architectures.attention_heads import heads
from dispersion.checkpoint import to_float64
from dispersion.position_bias import TableBias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dispersion.checkpoint import Checkpoint
    from dispersion.head import Head


@dataclass(frozen=True)
class TableAttention(Attention):
    """An `Attention` with the entries of a table, [buckets, heads], added to its logits.

    Attributes:
        table: the tensor; layers may share one.
        buckets: its rows.
        furthest: distance from which on keys share a bucket.
        directions: 2 where keys behind the query have buckets of their own, else 1.
    """

    table: str = ""
    buckets: int = 0
    furthest: int = 0
    directions: int = 1

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        return super().tensors | {self.table: (self.buckets, self.query.heads)}

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, kv_head, Head). Which keys get which entry is not told: no witnesses.

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        values = to_float64(checkpoint.read(self.table), tensor=self.table)
        exact = self.buckets // self.directions // 2
        biases = tuple(
            TableBias(tuple(column.tolist()), exact, self.furthest, self.directions)
            for column in values.T
        )
        yield from heads(checkpoint, replace(self, position_bias=biases.__getitem__))
