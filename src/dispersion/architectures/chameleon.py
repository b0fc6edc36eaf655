"""Chameleon: a LayerNorm with a gain and a bias for each head behind q and k."""

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


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """`swin_norm` moves the norm of the input to what attention puts out."""
    if not flag(config, "swin_norm", default=False):
        return blocks
    return replace(blocks, norm=None, inside=INSIDE | {r"input_layernorm\.weight": ledger.AFTER})


INSIDE = {
    r"self_attn\.(v_proj|o_proj)\.(weight|bias)": ledger.VALUE,
    r"self_attn\.rotary_emb\.inv_freq": ledger.FREQUENCIES,
    r"mlp\..+": ledger.FEED_FORWARD,
    r"post_attention_layernorm\.weight": ledger.AFTER,
}
FAMILY = Blocks(
    stack="layers",
    module="self_attn",
    norm="input_layernorm",
    norm_kind="rms",
    norm_parts=("weight",),
    key_heads="num_key_value_heads",
    key_heads_absent=32,
    bias="attention_bias",
    bias_absent=False,
    qk_norm=Norm("layer", "{side}_norm.weight", "{side}_norm.bias", stacked=True),
    qk_eps=1e-5,
    eps_key="rms_norm_eps",
    rotation=rope(),
    tokens="embed_tokens.weight",
    vary=vary,
    inside=INSIDE,
    outside={
        r"embed_tokens\.weight": ledger.EMBEDDING,
        r"norm\.weight": ledger.FINAL_NORM,
        r"(.+\.)?lm_head\..+": ledger.HEAD,
    },
).family("chameleon", "Chameleon", "QK LayerNorm with gain and bias per head; swin_norm: no other")
