"""GPT-NeoX and Pythia: one projection with q, k, v head by head; part of each head turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.assemble import assemble, split
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root, with_factor
from dispersion.config import flag, integer, positive
from dispersion.embedding import EmbeddingInput
from dispersion.rotary import rotary_from_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.checkpoint import Checkpoint
    from dispersion.rotary import Rotary

NAMING = ledger.Naming(
    stack="layers",
    module="attention",
    near=("input_layernorm",),
    inside={
        r"attention\.dense\.(weight|bias)": ledger.VALUE,
        r"attention\.(bias|masked_bias)": ledger.MASK,
        r"attention\.rotary_emb\.inv_freq": ledger.FREQUENCIES,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"post_attention_layernorm\.(weight|bias)": ledger.AFTER,
    },
    outside={
        r"embed_in\.weight": ledger.EMBEDDING,
        r"final_layer_norm\.(weight|bias)": ledger.FINAL_NORM,
        r"(.+\.)?(embed_out|lm_head)\..+": ledger.HEAD,
        r"rotary_emb\.inv_freq": ledger.FREQUENCIES,
    },
)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read a config with `rotary_pct` and `rotary_emb_base`, or with `rope_parameters`."""
    config = checkpoint.config
    layers = integer(config, "num_hidden_layers", maximum=ledger.MOST_LAYERS)
    width = integer(config, "hidden_size")
    heads = integer(config, "num_attention_heads")
    head_dim = split(width, heads, "hidden_size", "num_attention_heads")
    bias = flag(config, "attention_bias", default=True)
    eps = positive(config, "layer_norm_eps", 1e-5)
    stated = config.get("max_position_embeddings") is not None
    positions = integer(config, "max_position_embeddings") if stated else None
    rotary = _rotary(config, head_dim)
    scale, rotated_factor = with_factor(inverse_root(head_dim), rotary)

    def describe(prefix: str, layer: int) -> Attention:
        root = f"{prefix}layers.{layer}."
        query, key = (
            Projection(
                weight=f"{root}attention.query_key_value.weight",
                bias=f"{root}attention.query_key_value.bias" if bias else None,
                heads=heads,
                first=first,
                outputs=3 * width,
                stride=3 * head_dim,
            )
            for first in (0, head_dim)
        )
        return Attention(
            module=f"{root}attention",
            layer=layer,
            width=width,
            head_dim=head_dim,
            query=query,
            key=key,
            input_norm=Norm(
                "layer", f"{root}input_layernorm.weight", f"{root}input_layernorm.bias"
            ),
            scale=scale,
            rotary=rotary,
            rotated_factor=rotated_factor,
            embedding=None
            if layer
            else EmbeddingInput(checkpoint, f"{prefix}embed_in.weight", width, eps),
        )

    return assemble(
        checkpoint,
        NAMING,
        describe,
        family="gpt_neox",
        layers=layers,
        layers_key="num_hidden_layers",
        asked=asked,
        facts={"max_positions": positions},
    )


def _rotary(config: Mapping[str, Any], head_dim: int) -> Rotary | None:
    own = {
        "rope_theta": ("rotary_emb_base", 10000.0),
        "partial_rotary_factor": ("rotary_pct", 0.25),
    }
    usual = dict(config)
    for key, (old, default) in own.items():
        # The class knows these two by the old names only, or within rope_parameters.
        usual[key] = positive(config, old, default)
    return rotary_from_config(usual, None, head_dim)


FAMILY = Family(
    "gpt_neox",
    ("gpt_neox",),
    ("GPTNeoX",),
    "LayerNorm and biases, projections fused head by head, partial RoPE",
    read,
)
