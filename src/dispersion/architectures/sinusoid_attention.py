"""One attention layer whose queries are multiplied by projected sinusoids of the distance."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from dispersion.architectures.attention import Attention, Projection
from dispersion.architectures.attention_heads import heads
from dispersion.architectures.head_rows import rows_of_head
from dispersion.checkpoint import to_float64
from dispersion.cholesky import UNIT_ROUNDOFF
from dispersion.errors import CheckpointError
from dispersion.sinusoid_bias import SinusoidBias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dispersion.checkpoint import Checkpoint
    from dispersion.head import BallImage, Head

_BASE = 10000.0


@dataclass(frozen=True)
class SinusoidAttention(Attention):
    """An `Attention` with products of queries and sinusoids in its logits.

    Attributes:
        position: the projection of the sinusoids, head by head, tensor of shape [out, width].
        added: tensors of shape [heads, head_dim]: what is added to queries that meet keys, and to
            those that meet sinusoids.
    """

    position: str = ""
    added: tuple[str, str] = ("", "")

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        count = self.query.heads
        found: dict[str, tuple[int, ...]] = {self.position: (count * self.head_dim, self.width)}
        return super().tensors | found | dict.fromkeys(self.added, (count, self.head_dim))

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, kv_head, Head). Which query meets what is not told: no witnesses.

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        contents, places = (to_float64(checkpoint.read(n), tensor=n) for n in self.added)
        frequencies = _BASE ** (-np.arange(0, self.width, 2) / self.width)
        side = Projection(self.position, None, self.query.heads)
        for index, kv_head, head in heads(checkpoint, self):
            assert head.query is not None
            assert head.key is not None
            query = shifted(head.query, contents[index])
            bias = SinusoidBias(
                query=query,
                key=head.key,
                scale=head.scale,
                weight=rows_of_head(checkpoint, self, side, index),
                between=places[index] - contents[index],
                frequencies=frequencies,
            )
            yield index, kv_head, replace(head, query=query, bias=bias)


def shifted(ball: BallImage, by: np.ndarray[tuple[int], np.dtype[np.float64]]) -> BallImage:
    """The ball image moved by a vector."""
    start = np.zeros(ball.head_dim) if ball.offset is None else ball.offset
    offset = start + by
    error = 2 * UNIT_ROUNDOFF * np.abs(offset)
    if ball.offset_error is not None:
        error = error + ball.offset_error
    return replace(ball, offset=offset, offset_error=error * (1 + 2.0**-48))


def with_sinusoids(attention: Attention, position: str, added: tuple[str, str]) -> Attention:
    """This attention with products of sinusoids.

    Raises:
        CheckpointError: there are not as many sines as cosines.
    """
    if attention.width % 2:
        msg = f"hidden_size in config.json must be even with sinusoids. Got {attention.width}."
        raise CheckpointError(msg)
    own = {each.name: getattr(attention, each.name) for each in fields(attention)}
    return SinusoidAttention(**own, position=position, added=added)
