"""Longformer: RoBERTa with windows on both sides, and tokens that are marked to see everything.

A query sees the keys at most half of `attention_window` away, those on one side at the end of a
context, and all marked tokens. A marked token's query and the keys that it meets come from further
projections; these are heads of their own here, behind the others of a layer. Which token is marked
is not told, so nothing is witnessed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import bert, ledger
from dispersion.architectures.attention import Attention, Projection
from dispersion.architectures.attention_heads import heads
from dispersion.architectures.plans import Family, Plan
from dispersion.checkpoint.text import shown
from dispersion.config import integer
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dispersion.checkpoint import Checkpoint
    from dispersion.head import Head

KEY = "attention_window"
NAMING = replace(
    bert.NAMING,
    inside={
        **bert.NAMING.inside,
        r"attention\.self\.value_global\.(weight|bias)": ledger.VALUE,
    },
)


@dataclass(frozen=True, kw_only=True)
class MarkedAttention(Attention):
    """One layer; the heads of `marked` follow its own, which see at least `near` keys."""

    marked: Attention
    near: int

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        return self.plain.tensors | self.marked.tensors

    @property
    def plain(self) -> Attention:
        """The attention of tokens without a mark."""
        own = {each.name: getattr(self, each.name) for each in fields(Attention)}
        found = Attention(**own)
        count = self.marked.query.heads
        return replace(
            found,
            query=replace(found.query, heads=count),
            key=replace(found.key, heads=count),
            window=self.near,
        )

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, kv_head, Head), those of tokens without a mark first.

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        for index, kv_head, head in heads(checkpoint, self.plain):
            yield index, kv_head, replace(head, reach=None)
        count = self.marked.query.heads
        for index, kv_head, head in heads(checkpoint, self.marked):
            yield count + index, count + kv_head, head


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read an encoder; the first token's position is the one after `pad_token_id`."""
    config = checkpoint.config
    padding = integer(config, "pad_token_id", 1, minimum=0)

    def beside(prefix: str, layer: int, found: Attention) -> MarkedAttention:  # noqa: ARG001
        own: dict[str, Any] = {each.name: getattr(found, each.name) for each in fields(found)}
        own |= {"causal": False, "known_inputs": False, "embedding": None}
        own |= {"query": doubled(found.query), "key": doubled(found.key)}
        query, key = (
            Projection(f"{found.module}.{s}_global.weight", f"{found.module}.{s}_global.bias", n)
            for s, n in (("query", found.query.heads), ("key", found.key.heads))
        )
        marked = replace(
            found, query=query, key=key, causal=False, known_inputs=False, embedding=None
        )
        return MarkedAttention(**own, marked=marked, near=near(config, layer))

    return bert.read_encoder(
        checkpoint, asked, "longformer", padding + 1, plain=False, naming=NAMING, beside=beside
    )


def doubled(side: Projection) -> Projection:
    """The projection of a layer that counts both kinds of heads."""
    return replace(side, heads=2 * side.heads)


def near(config: Mapping[str, Any], layer: int) -> int:
    """How many keys a query sees at least, at an end of a long context.

    Raises:
        CheckpointError: the window is not even, or none is stated for the layer.
    """
    stated = config.get(KEY, 512)
    if isinstance(stated, list):
        if layer >= len(stated):
            msg = f"{KEY} in config.json must have an entry for layer {layer}. Got {len(stated)}."
            raise CheckpointError(msg)
        stated = stated[layer]
    size = integer({KEY: stated}, KEY, minimum=2)
    if size % 2:
        msg = f"{KEY} in config.json must be even. Got {shown(repr(stated))}."
        raise CheckpointError(msg)
    return size // 2 + 1


FAMILY = Family(
    "longformer",
    ("longformer",),
    ("Longformer",),
    "as roberta, windows on both sides; heads of marked tokens behind the others",
    read,
)
