"""One attention layer whose queries and keys are multiplied by tables of distances."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.architectures.attention import Attention
from dispersion.architectures.attention_heads import heads
from dispersion.architectures.head_rows import bias_of_head, rows_of_head
from dispersion.checkpoint import to_float64
from dispersion.cholesky import gamma, norm_upper
from dispersion.distance_bias import DistanceBias, Places
from dispersion.embedding import States, centred, normalised, norms
from dispersion.enclosure import Enclosure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dispersion.architectures.attention import Norm, Projection
    from dispersion.checkpoint import Checkpoint
    from dispersion.head import Head

_EPS_ROUNDING = 2.0**-23
_UP = 1 + 2.0**-46


@dataclass(frozen=True)
class DistanceAttention(Attention):
    """An `Attention` with products of a table's rows in its logits.

    Attributes:
        table: tensor of shape [rows, width], one row for each index.
        direct: whether its rows, of shape [rows, head_dim], are added to every head's keys as they
            are. They begin with keys before the query then, with those behind it otherwise.
        places: which index a key has.
        table_norm: the LayerNorm that the table passes, or None, and its ε.
        key_table: how rows become what is added to keys, or None for nothing.
        query_table: the same for queries.
    """

    table: str = ""
    direct: bool = False
    places: Places = field(default_factory=partial(Places, 0, 0))
    table_norm: Norm | None = None
    table_eps: float = 0.0
    key_table: Projection | None = None
    query_table: Projection | None = None

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        out = self.query.heads * self.head_dim
        size = self.head_dim if self.direct else self.width
        found: dict[str, tuple[int, ...]] = {self.table: (self.places.rows, size)}
        for side in (self.key_table, self.query_table):
            if side is not None:
                found[side.weight] = (out, self.width)
                if side.bias is not None:
                    found[side.bias] = (out,)
        if self.table_norm is not None:
            parts = (self.table_norm.gain, self.table_norm.bias)
            found |= {name: (self.width,) for name in parts if name is not None}
        return super().tensors | found

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, kv_head, Head). Which query is multiplied by what is not told: no witnesses.

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        states = self._table(checkpoint)
        if self.direct:
            states = States(states.value[::-1], states.error)
        for index, kv_head, head in heads(checkpoint, self):
            assert head.query is not None
            assert head.key is not None
            bias = DistanceBias(
                query=head.query,
                key=head.key,
                scale=head.scale,
                keys=states
                if self.direct
                else self._projected(checkpoint, states, self.key_table, index),
                queries=self._projected(checkpoint, states, self.query_table, index),
                places=self.places,
            )
            yield index, kv_head, replace(head, bias=bias)

    def _table(self, checkpoint: Checkpoint) -> States:
        """The rows that the projections read."""
        value = to_float64(checkpoint.read(self.table), tensor=self.table)
        states = States(value, np.zeros(len(value)))
        if self.table_norm is None:
            return states
        eps = self.table_eps
        around = Enclosure(eps * (1 - _EPS_ROUNDING), eps * (1 + _EPS_ROUNDING))
        found = normalised(centred(states), around)
        gain, bias = (
            to_float64(checkpoint.read(name), tensor=name)
            for name in (self.table_norm.gain, self.table_norm.bias)
            if name is not None
        )
        value = found.value * gain
        error = found.error * float(np.max(np.abs(gain)))
        error = error + gamma(4) * (norms(value) + norm_upper(bias))
        return States(value + bias, error * _UP)

    def _projected(
        self, checkpoint: Checkpoint, states: States, side: Projection | None, head: int
    ) -> States:
        count = len(states.value)
        if side is None:
            return States(np.zeros((count, self.head_dim)), np.zeros(count))
        weight = rows_of_head(checkpoint, self, side, head)
        value = states.value @ weight.T
        size = norm_upper(weight.ravel())
        error = size * (states.error + gamma(self.width + 4) * norms(states.value))
        bias = bias_of_head(checkpoint, self, side, head)
        if bias is not None:
            error = error + gamma(2) * (norms(value) + norm_upper(bias))
            value = value + bias
        return States(value, error * _UP)


def with_distances(attention: Attention, table: str, places: Places, **more: Any) -> Attention:
    """This attention with products of a table's rows; `more` are further fields."""
    own = {each.name: getattr(attention, each.name) for each in fields(attention)}
    return DistanceAttention(**own, table=table, places=places, **more)
