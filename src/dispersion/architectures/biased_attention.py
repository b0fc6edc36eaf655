"""One attention layer whose logits get biases from tables of distances, stored in the file."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures.attention import Attention
from dispersion.architectures.attention_heads import heads
from dispersion.balls import product, total
from dispersion.checkpoint import to_float64
from dispersion.head import ONE
from dispersion.position_bias import BoundedBias, TableBias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dispersion.checkpoint import Checkpoint
    from dispersion.enclosure import Enclosure
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


@dataclass(frozen=True)
class BoundedAttention(Attention):
    """An `Attention` with entries of tables added to its logits, whatever they depend on.

    Attributes:
        tables: names of tensors of shape [rows, heads], and their rows; one entry of each, or a
            mean of several, is added to a logit.
        across: whether these have shape [heads, rows] instead.
        factor: encloses the factor of all entries.
        gate: tensor of shape [1, heads, 1, 1]. A row's entries are then multiplied by one number
            g = a(bc − 1) + 2, where c is that of the head and a, b lie between 0 and 1 (WavLM).
            None for g = 1.
        placed: whether entries depend on places that inputs state for each token, so that queries
            at one position may differ in them.
    """

    tables: tuple[tuple[str, int], ...] = ()
    across: bool = False
    factor: Enclosure = ONE
    gate: str | None = None
    placed: bool = False

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        heads = self.query.heads
        found: dict[str, tuple[int, ...]] = {
            name: (heads, rows) if self.across else (rows, heads) for name, rows in self.tables
        }
        if self.gate is not None:
            found[self.gate] = (1, heads, 1, 1)
        return super().tensors | found

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, kv_head, Head). Which keys get which entry is not told: no witnesses.

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        read = [to_float64(checkpoint.read(name), tensor=name) for name, _ in self.tables]
        if self.across:
            read = [table.T for table in read]
        widths = [
            total(*(float(x) for t in read for x in (t[:, i].max(), -t[:, i].min()))).upper
            for i in range(self.query.heads)
        ]
        widths = [product(width, self.factor.upper).upper for width in widths]
        if self.gate is not None:
            gates = to_float64(checkpoint.read(self.gate), tensor=self.gate).ravel()
            # |g| is largest at an end of a and b: 2, 1 or 1 + c.
            most = [
                max(2.0, abs(total(1.0, float(c)).lower), total(1.0, float(c)).upper) for c in gates
            ]
            widths = [product(w, g).upper for w, g in zip(widths, most, strict=True)]
        biases = tuple(BoundedBias(width) for width in widths)
        for index, kv_head, head in heads(
            checkpoint, replace(self, position_bias=biases.__getitem__)
        ):
            # A gate is made of the query's state.
            yield index, kv_head, replace(head, common=self.gate is None and not self.placed)


def with_tables(attention: Attention, *tables: tuple[str, int], **more: Any) -> Attention:
    """This attention with entries of tables, where there are any, added to its logits.

    `more` are further fields of `BoundedAttention`.
    """
    if not tables:
        return attention
    own = {field.name: getattr(attention, field.name) for field in fields(attention)}
    return BoundedAttention(**own, tables=tables, **more)
