"""LiLT: RoBERTa, whose logits are sums over a stream of text and a narrower one of places.

Each stream has norms and projections of its own, and both softmaxes are over one sum of logits. A
row's difference is that of the text's logits plus that of the places', and since nothing ties the
two states of a token the largest of it is the sum of both largest: the second counts as a bounded
term beside the first (added_bias.py).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from dispersion.added_bias import with_width
from dispersion.architectures import bert, ledger
from dispersion.architectures.assemble import split
from dispersion.architectures.attention import Attention, Projection
from dispersion.architectures.attention_heads import heads
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root
from dispersion.config import integer
from dispersion.spread import spread_bound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dispersion.checkpoint import Checkpoint
    from dispersion.head import Head

RATIO = "channel_shrink_ratio"
_PARTS = r"\.(weight|bias)"
NAMING = replace(
    bert.NAMING,
    inside={
        **bert.NAMING.inside,
        rf"attention\.self\.layout_value{_PARTS}": ledger.VALUE,
        rf"attention\.layout_output\.dense{_PARTS}": ledger.VALUE,
        rf"attention\.layout_output\.LayerNorm{_PARTS}": ledger.AFTER,
        rf"layout_(intermediate|output)\.dense{_PARTS}": ledger.FEED_FORWARD,
        rf"layout_output\.LayerNorm{_PARTS}": ledger.UNASKED,
    },
    outside={**bert.NAMING.outside, r"layout_embeddings\..+": ledger.EMBEDDING},
)


@dataclass(frozen=True, kw_only=True)
class StreamsAttention(Attention):
    """One layer; `other` is the attention whose logits are added, head by head."""

    other: Attention

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        return super().tensors | self.other.tensors

    def heads(self, checkpoint: Checkpoint) -> Iterator[tuple[int, int, Head]]:
        """Yield (head, kv_head, Head). Nothing is witnessed.

        Raises:
            CheckpointError: a weight is not finite; the message names the tensor and the index.
        """
        both = zip(heads(checkpoint, self), self.other.heads(checkpoint), strict=True)
        for (index, kv_head, head), (_, _, other) in both:
            width = spread_bound(other).spread
            yield index, kv_head, with_width(head, width, common=False)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read an encoder; the first token's position is the one after `pad_token_id`."""
    config = checkpoint.config
    ratio = integer(config, RATIO, 4)
    padding = integer(config, "pad_token_id", 0, minimum=0)

    def beside(prefix: str, layer: int, text: Attention) -> StreamsAttention:
        before = f"encoder.layer.{layer - 1}.layout_output" if layer else "layout_embeddings"
        width = split(text.width, ratio, "hidden_size", RATIO)
        head_dim = split(text.head_dim, ratio, "the size of a head", RATIO)
        query, key = (
            Projection(f"{text.module}.layout_{s}.weight", f"{text.module}.layout_{s}.bias", heads)
            for s, heads in (("query", text.query.heads), ("key", text.key.heads))
        )
        other = Attention(
            module=text.module,
            layer=layer,
            width=width,
            head_dim=head_dim,
            query=query,
            key=key,
            input_norm=bert.stored_norm(checkpoint, f"{prefix}{before}.LayerNorm"),
            scale=inverse_root(head_dim),
            causal=False,
            known_inputs=False,
        )
        own = {each.name: getattr(text, each.name) for each in fields(text)}
        own |= {"known_inputs": False, "causal": False}
        return StreamsAttention(**own, other=other)

    return bert.read_encoder(
        checkpoint, asked, "lilt", padding + 1, plain=False, naming=NAMING, beside=beside
    )


FAMILY = Family(
    "lilt",
    ("lilt",),
    ("Lilt",),
    "as roberta, with the logits of a second stream by places on a page",
    read,
)
