"""LongT5: T5, whose encoder looks at near keys alone, or also at sums over blocks of tokens.

A query of the encoder sees the keys at most `local_radius` away, those on one side at the end of a
context, and what a row counts are these. With transient-global attention it also sees a key for
each block of `global_block_size` tokens: the projection of a sum over the block behind a norm of
its own. The larger of both norms' gains in each coordinate holds both kinds of keys.

Biases come from a table by distance, those of blocks from a second one; the widest difference of
entries that a row can meet adds to the spread (added_bias.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dispersion.added_bias import with_width
from dispersion.architectures import t5
from dispersion.architectures.attention import Attention, Norm
from dispersion.architectures.attention_heads import heads
from dispersion.architectures.head_rows import rows_of_head
from dispersion.architectures.plans import Family, Plan
from dispersion.balls import total
from dispersion.checkpoint import to_float64
from dispersion.checkpoint.text import shown
from dispersion.config import integer
from dispersion.errors import UnsupportedError
from dispersion.norms import projection_ball
from dispersion.position_bias import TableBias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dispersion.checkpoint import Checkpoint
    from dispersion.head import Head

LOCAL, GLOBAL = "layer.0.LocalSelfAttention", "layer.0.TransientGlobalSelfAttention"
MODULES = {"local": LOCAL, "transient-global": GLOBAL}


@dataclass(frozen=True, kw_only=True)
class NearAttention(Attention):
    """One layer of the encoder.

    Attributes:
        table: tensor of biases by distance, shape [buckets, heads].
        buckets, furthest: its rows, and the distance from which on keys share one.
        blocks: the table of biases of blocks, or None where there are none.
        block_gain: the gain of the norm that sums over blocks pass, or None.
    """

    table: str
    buckets: int
    furthest: int
    blocks: str | None = None
    block_gain: str | None = None

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        shape = (self.buckets, self.query.heads)
        found: dict[str, tuple[int, ...]] = {self.table: shape}
        if self.blocks is not None and self.block_gain is not None:
            found |= {self.blocks: shape, self.block_gain: (self.width,)}
        return super().tensors | found

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, kv_head, Head). Which keys get which entry is not told: no witnesses.

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        widths = self._widths(checkpoint)
        gain = None
        if self.block_gain is not None:
            assert self.input_norm is not None
            assert self.input_norm.gain is not None
            names = self.input_norm.gain, self.block_gain
            gain = np.maximum(*(np.abs(to_float64(checkpoint.read(n), tensor=n)) for n in names))
        for index, kv_head, head in heads(checkpoint, self):
            found = replace(head, reach=None)
            if gain is not None:
                rows = rows_of_head(checkpoint, self, self.key, kv_head)
                found = replace(found, key=projection_ball(rows, norm="rms", gain=gain))
            yield index, kv_head, with_width(found, widths[index])

    def _widths(self, checkpoint: Checkpoint) -> list[float]:
        """By head, how far apart two biases of one row can lie."""
        near = to_float64(checkpoint.read(self.table), tensor=self.table)
        far = None
        if self.blocks is not None:
            far = to_float64(checkpoint.read(self.blocks), tensor=self.blocks)
        assert self.window is not None
        found = []
        for head in range(self.query.heads):
            bias = TableBias(tuple(near[:, head]), self.buckets // 4, self.furthest, 2)
            entries = bias.entries(self.window)
            if far is not None:
                entries = [*entries, *far[:, head].tolist()]
            found.append(total(max(entries), -min(entries)).upper)
        return found


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read the encoder, the decoder, and the attention between them where the file holds both.

    Raises:
        UnsupportedError: the encoder attends in another way.
    """
    kind = checkpoint.config.get("encoder_attention_type", "local")
    if not isinstance(kind, str) or kind not in MODULES:
        msg = (
            f"encoder_attention_type in config.json must be one of {', '.join(MODULES)}. "
            f"Got {shown(repr(kind))}: not supported."
        )
        raise UnsupportedError(msg)
    module = MODULES[kind]
    inside = {
        pattern.replace("SelfAttention", module.rpartition(".")[2]): why
        for pattern, why in t5.ENCODER.inside.items()
    }
    naming = replace(t5.ENCODER, module=module, inside=inside)
    return t5.read_stacks(checkpoint, asked, "longt5", naming, _near)


def _near(config: Mapping[str, Any], stack: t5.Stack, layer: int) -> NearAttention:
    blocks = f"{stack.prefix}{stack.naming.stack}."
    module = stack.naming.module
    first = f"{blocks}0.{module}"
    buckets, furthest, _ = t5.table(config, 2)
    sums = module == GLOBAL
    return NearAttention(
        **t5.sides(config, f"{blocks}{layer}.{module}"),
        layer=layer,
        input_norm=Norm("rms", f"{blocks}{layer}.layer.0.layer_norm.weight"),
        causal=False,
        window=integer(config, "local_radius", 127) + 1,
        table=f"{first}.relative_attention_bias.weight",
        buckets=buckets,
        furthest=furthest,
        blocks=f"{first}.global_relative_attention_bias.weight" if sums else None,
        block_gain=f"{blocks}{layer}.{module}.global_input_layer_norm.weight" if sums else None,
    )


FAMILY = Family(
    "longt5",
    ("longt5",),
    ("LongT5",),
    "as t5, with an encoder of near keys, or of those and sums over blocks",
    read,
)
