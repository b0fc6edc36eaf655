"""Attention within windows of a picture, whose logits get biases by where two patches stand.

Windows are squares. Every other layer shifts them by half a side; a window then holds patches from
two ends of the picture, and those of the other end get a bias of −100, which only takes a share of
the row. A query sees the keys of its own end at least, a square of half a side.

Windows that reach over the edge are filled with states of zeros, which are keys as others are.

A query's row holds the entries of a square of as many ways as the window has places: b at the ways
(y − y′, x − x′) for its own (y, x) and all (y′, x′). How far these lie apart adds to the spread
(added_bias.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dispersion.added_bias import with_width
from dispersion.architectures.attention import Attention
from dispersion.architectures.attention_heads import heads
from dispersion.architectures.head_rows import rows_of_head, stored_vectors
from dispersion.checkpoint import to_float64
from dispersion.zero_state import with_zero_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dispersion.checkpoint import Checkpoint
    from dispersion.head import Head

    Table = NDArray[np.float64]

_UP = 1 + 2.0**-50


def least_keys(side: int, shift: int) -> int:
    """How many keys every query sees, at least, in windows of a side that are shifted."""
    short = min(shift, side - shift) if shift else side
    return short**2


def row_widths(low: Table, high: Table) -> list[float]:
    """By head, how far apart two biases of one row can lie. **Upper.**

    Args:
        low, high: bounds on the bias at each way, shape (2·side − 1, 2·side − 1, heads).
    """
    side = (len(low) + 1) // 2
    most = sliding_window_view(high, (side, side), axis=(0, 1)).max(axis=(-2, -1))
    least = sliding_window_view(low, (side, side), axis=(0, 1)).min(axis=(-2, -1))
    return [float(x) * _UP for x in np.max(most - least, axis=(0, 1))]


@dataclass(frozen=True, kw_only=True)
class WindowAttention(Attention):
    """One layer of Swin.

    Attributes:
        table: tensor of shape [(2·side − 1)², heads], a bias for each way.
        side: of a window.
    """

    table: str
    side: int

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        return super().tensors | {self.table: ((2 * self.side - 1) ** 2, self.query.heads)}

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, kv_head, Head). Which keys get which entry is not told: no witnesses.

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        ways = 2 * self.side - 1
        table = to_float64(checkpoint.read(self.table), tensor=self.table).reshape(ways, ways, -1)
        widths = row_widths(table, table)
        gain, bias = stored_vectors(checkpoint, self.input_norm)
        for index, kv_head, head in heads(checkpoint, self):
            assert head.key is not None
            weight = rows_of_head(checkpoint, self, self.key, index)
            padded = replace(head, key=with_zero_state(head.key, weight, gain, bias), reach=None)
            yield index, kv_head, with_width(padded, widths[index])
