"""MPNet: BERT, whose layers share one relative bias by distance, as T5's encoder has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispersion.architectures import bert, ledger
from dispersion.architectures.assemble import assemble, split
from dispersion.architectures.attention import Projection
from dispersion.architectures.biased_attention import TableAttention
from dispersion.architectures.ledger import Naming
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root
from dispersion.config import integer
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from dispersion.checkpoint import Checkpoint

_BUCKETS, _FURTHEST = 32, 128  # the model's code takes these, whatever its config says
_PADDING = 1
_KEY = "relative_attention_num_buckets"
NAMING = Naming(
    stack="encoder.layer",
    module="attention.attn",
    inside={
        r"attention\.attn\.[vo]\.(weight|bias)": ledger.VALUE,
        r"attention\.LayerNorm\.(weight|bias)": ledger.AFTER,
        r"(intermediate|output)\.dense\.(weight|bias)": ledger.FEED_FORWARD,
        r"output\.LayerNorm\.(weight|bias)": ledger.UNASKED,
    },
    outside=bert.NAMING.outside,
)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read an encoder."""
    config = checkpoint.config
    width = integer(config, "hidden_size", 768)
    heads = integer(config, "num_attention_heads", 12)
    head_dim = split(width, heads, "hidden_size", "num_attention_heads")
    rows = integer(config, "max_position_embeddings", 512, minimum=_PADDING + 2)
    buckets = integer(config, _KEY, _BUCKETS)
    if buckets != _BUCKETS:
        msg = (
            f"{_KEY} in config.json must be {_BUCKETS} for mpnet, whose own code ignores it. "
            f"Got {buckets}: not supported."
        )
        raise UnsupportedError(msg)

    def describe(prefix: str, layer: int) -> TableAttention:
        before = f"encoder.layer.{layer - 1}.output" if layer else "embeddings"
        root = f"{prefix}encoder.layer.{layer}.attention.attn"
        query, key = (
            Projection(f"{root}.{side}.weight", f"{root}.{side}.bias", heads) for side in "qk"
        )
        return TableAttention(
            module=root,
            layer=layer,
            width=width,
            head_dim=head_dim,
            query=query,
            key=key,
            input_norm=bert.stored_norm(checkpoint, f"{prefix}{before}.LayerNorm"),
            scale=inverse_root(head_dim),
            causal=False,
            table=f"{prefix}encoder.relative_attention_bias.weight",
            buckets=_BUCKETS,
            furthest=_FURTHEST,
            directions=2,
        )

    positions = rows - _PADDING - 1
    return assemble(
        checkpoint,
        NAMING,
        describe,
        family="mpnet",
        layers=integer(config, "num_hidden_layers", 12, maximum=ledger.MOST_LAYERS),
        layers_key="num_hidden_layers",
        asked=asked,
        facts={"max_positions": positions},
        learned_positions=positions,
        position_table="embeddings.position_embeddings.weight",
        position_rows=rows,
    )


FAMILY = Family(
    "mpnet", ("mpnet",), ("MPNet",), "as bert, with a relative bias that all layers share", read
)
