"""Phi 1 and 2: a LayerNorm, biases, and half of each head turns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.attention import Norm
from dispersion.architectures.blocks import Blocks
from dispersion.architectures.rotations import rope
from dispersion.config import flag

if TYPE_CHECKING:
    from collections.abc import Mapping

QK_NORM = Norm("layer", "{side}_layernorm.weight", "{side}_layernorm.bias")


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """`qk_layernorm`: one LayerNorm for all heads behind queries, and one behind keys."""
    normed = flag(config, "qk_layernorm", default=False)
    return replace(blocks, qk_norm=QK_NORM) if normed else blocks


BLOCKS = Blocks(
    stack="layers",
    module="self_attn",
    norm="input_layernorm",
    key_heads="num_key_value_heads",
    own_head_dim=True,
    eps_key="layer_norm_eps",
    rotation=rope(partial=0.5),
    tokens="embed_tokens.weight",
    vary=vary,
    inside={
        r"self_attn\.(v_proj|dense)\.(weight|bias)": ledger.VALUE,
        r"self_attn\.rotary_emb\.inv_freq": ledger.FREQUENCIES,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"post_attention_layernorm\.(weight|bias)": ledger.AFTER,
    },
    outside={
        r"embed_tokens\.weight": ledger.EMBEDDING,
        r"final_layernorm\.(weight|bias)": ledger.FINAL_NORM,
        r"(.+\.)?lm_head\..+": ledger.HEAD,
    },
)

FAMILY = BLOCKS.family(
    "phi", "Phi", "LayerNorm, biases, partial RoPE, with qk_layernorm a LayerNorm per head"
)
