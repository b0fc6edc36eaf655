"""Attention that pools a stack's last states by one learned query (SigLIP's head).

Every row has the same query q = W_q p + b_q, p the learned probe. As nothing turns, a row's spread
is the largest over the segment {u·q : |u| ≤ 1}: its ends ±q have equal spreads, since a ball of
keys is symmetric about its bias and the bias moves all logits of a row alike. So the segment is a
ball image that loses nothing. What several queries could do together (any-token retrieval) no
single one does: nothing is witnessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dispersion.architectures.attention import Attention
from dispersion.checkpoint import to_float64
from dispersion.cholesky import gamma
from dispersion.head import ONE, BallImage, Head
from dispersion.norms import projection_ball

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dispersion.checkpoint import Checkpoint

    Vector = NDArray[np.float64]

CAP = "learned probe"


@dataclass(frozen=True)
class PoolingAttention(Attention):
    """Attention whose queries are a learned probe's, fused and biased as in `MultiheadAttention`.

    Attributes:
        probe: tensor of shape [1, 1, width].
    """

    probe: str = ""

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        return super().tensors | {self.probe: (1, 1, self.width)}

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, head, Head), reading one head's rows at a time.

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        assert self.input_norm is not None

        def read(name: str | None, part: slice | None = None) -> Vector:
            assert name is not None
            values = checkpoint.read(name) if part is None else checkpoint.read(name, part)
            return to_float64(values, tensor=name, first_row=0 if part is None else part.start)

        gain, norm_bias = read(self.input_norm.gain), read(self.input_norm.bias)
        probe = read(self.probe).reshape(-1)
        for head in range(self.query.heads):
            first = head * self.head_dim
            rows = slice(self.query.first + first, self.query.first + first + self.head_dim)
            query = constant_query(
                read(self.query.weight, rows), probe, read(self.query.bias, rows)
            )
            rows = slice(self.key.first + first, self.key.first + first + self.head_dim)
            key = projection_ball(
                read(self.key.weight, rows),
                norm=self.input_norm.kind,
                gain=gain,
                norm_bias=norm_bias,
                bias=read(self.key.bias, rows),
            )
            built = Head(query, key, self.scale, causal=False, self_attention=False)
            yield head, head, built


def constant_query(weight: Vector, probe: Vector, bias: Vector) -> BallImage:
    """The segment between −q and q, q = W p + b, as a ball image.

    Args:
        weight: one head's rows, shape (head_dim, width).
        probe: shape (width,).
        bias: shape (head_dim,).

    """
    error = (np.abs(weight) @ np.abs(probe) + np.abs(bias)) * (gamma(len(probe) + 8) * 1.01)
    return BallImage((weight @ probe + bias)[:, None], radius=ONE, row_error=error, cap=CAP)
