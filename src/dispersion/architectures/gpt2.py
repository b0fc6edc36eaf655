"""GPT-2: fused, transposed projections behind a LayerNorm, learned positions, no rotation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.assemble import assemble, split
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import divided, inverse_root
from dispersion.config import flag, integer, positive
from dispersion.embedding import EmbeddingInput
from dispersion.head import ONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.checkpoint import Checkpoint

NAMING = ledger.Naming(
    stack="h",
    module="attn",
    near=("ln_1",),
    inside={
        r"attn\.c_proj\.(weight|bias)": ledger.VALUE,
        r"attn\.(bias|masked_bias)": ledger.MASK,
        r"crossattention\.(bias|masked_bias)": ledger.MASK,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"(ln_2|ln_cross_attn)\.(weight|bias)": ledger.AFTER,
    },
    outside={
        r"wte\.weight": ledger.EMBEDDING,
        r"wpe\.weight": "position embedding",
        r"ln_f\.(weight|bias)": ledger.FINAL_NORM,
        r"lm_head\.weight": ledger.HEAD,
    },
    refused={r"crossattention\..+": "cross-attention: its keys come from another model"},
)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read a config in GPT-2's own keys, or in the names common to other models."""
    config = checkpoint.config
    layers_key = _known(config, "n_layer", "num_hidden_layers")
    width_key = _known(config, "n_embd", "hidden_size")
    heads_key = _known(config, "n_head", "num_attention_heads")
    layers = integer(config, layers_key, maximum=ledger.MOST_LAYERS)
    width, heads = integer(config, width_key), integer(config, heads_key)
    positions = integer(config, _known(config, "n_positions", "max_position_embeddings"), 1024)
    head_dim = split(width, heads, width_key, heads_key)
    scaled = flag(config, "scale_attn_weights", default=True)
    by_layer = flag(config, "scale_attn_by_inverse_layer_idx", default=False)

    def describe(prefix: str, layer: int) -> Attention:
        root = f"{prefix}h.{layer}."
        scale = inverse_root(head_dim) if scaled else ONE
        query, key = (
            Projection(
                weight=f"{root}attn.c_attn.weight",
                bias=f"{root}attn.c_attn.bias",
                heads=heads,
                first=first,
                outputs=3 * width,
                transposed=True,
            )
            for first in (0, width)
        )
        return Attention(
            module=f"{root}attn",
            layer=layer,
            width=width,
            head_dim=head_dim,
            query=query,
            key=key,
            input_norm=Norm("layer", f"{root}ln_1.weight", f"{root}ln_1.bias"),
            scale=divided(scale, layer + 1) if by_layer else scale,
            embedding=None if layer else _embedding(checkpoint, prefix, width),
        )

    return assemble(
        checkpoint,
        NAMING,
        describe,
        family="gpt2",
        layers=layers,
        layers_key=layers_key,
        asked=asked,
        facts={"max_positions": positions},
        learned_positions=positions,
        position_table="wpe.weight",
    )


def _embedding(checkpoint: Checkpoint, prefix: str, width: int) -> EmbeddingInput:
    return EmbeddingInput(
        source=checkpoint,
        tokens=f"{prefix}wte.weight",
        width=width,
        eps=positive(checkpoint.config, "layer_norm_epsilon", 1e-5),
        positions=f"{prefix}wpe.weight",
    )


def _known(config: Mapping[str, Any], own: str, common: str) -> str:
    return common if own not in config and common in config else own


FAMILY = Family(
    "gpt2", ("gpt2",), ("GPT2",), "LayerNorm, biases, learned positions, no rotation", read
)
