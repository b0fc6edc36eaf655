"""BLOOM: LayerNorm, biases, one projection with q, k, v head by head, and ALiBi."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispersion.architectures import ledger
from dispersion.architectures.alibi import bloom_slope
from dispersion.architectures.assemble import assemble, split
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root
from dispersion.config import integer
from dispersion.position_bias import LinearBias

if TYPE_CHECKING:
    from dispersion.checkpoint import Checkpoint

NAMING = ledger.Naming(
    stack="h",
    module="self_attention",
    near=("input_layernorm",),
    inside={
        r"self_attention\.dense\.(weight|bias)": ledger.VALUE,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"post_attention_layernorm\.(weight|bias)": ledger.AFTER,
    },
    outside={
        r"word_embeddings\.weight": ledger.EMBEDDING,
        r"word_embeddings_layernorm\.(weight|bias)": ledger.EMBEDDING,
        r"ln_f\.(weight|bias)": ledger.FINAL_NORM,
        r"(.+\.)?lm_head\..+": ledger.HEAD,
    },
)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read a config with `n_layer` and `n_head`, or their common names."""
    config = checkpoint.config
    layers_key = "n_layer" if "n_layer" in config else "num_hidden_layers"
    heads_key = "n_head" if "n_head" in config else "num_attention_heads"
    width_key = "n_embed" if config.get("n_embed") is not None else "hidden_size"
    layers = integer(config, layers_key, maximum=ledger.MOST_LAYERS)
    heads, width = integer(config, heads_key), integer(config, width_key)
    head_dim = split(width, heads, width_key, heads_key)

    def describe(prefix: str, layer: int) -> Attention:
        root = f"{prefix}h.{layer}."
        query, key = (
            Projection(
                weight=f"{root}self_attention.query_key_value.weight",
                bias=f"{root}self_attention.query_key_value.bias",
                heads=heads,
                first=first,
                outputs=3 * width,
                stride=3 * head_dim,
            )
            for first in (0, head_dim)
        )
        return Attention(
            module=f"{root}self_attention",
            layer=layer,
            width=width,
            head_dim=head_dim,
            query=query,
            key=key,
            input_norm=Norm(
                "layer", f"{root}input_layernorm.weight", f"{root}input_layernorm.bias"
            ),
            scale=inverse_root(head_dim),
            position_bias=lambda head: LinearBias(bloom_slope(heads, head)),
        )

    return assemble(
        checkpoint,
        NAMING,
        describe,
        family="bloom",
        layers=layers,
        layers_key=layers_key,
        asked=asked,
        facts={"max_positions": None},
    )


FAMILY = Family("bloom", ("bloom",), ("Bloom",), "LayerNorm and biases, ALiBi", read)
