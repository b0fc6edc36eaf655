"""EXAONE 3.0 and 3.5: Llama's attention by names of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks, Keys
from dispersion.architectures.rotations import rope
from dispersion.rotary import RopeRule

if TYPE_CHECKING:
    from collections.abc import Mapping


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """Either name of the norms' ε."""
    return replace(blocks, eps_key="rms_norm_eps") if "rms_norm_eps" in config else blocks


FAMILY = Blocks(
    stack="h",
    module="attn.attention",
    norm="ln_1",
    norm_kind="rms",
    norm_parts=("weight",),
    keys=Keys(layers=("num_hidden_layers", "num_layers")),
    key_heads="num_key_value_heads",
    key_heads_absent=8,
    own_head_dim=True,
    bias="attention_bias",
    bias_absent=False,
    rotation=rope(RopeRule(theta=500000.0)),
    tokens="wte.weight",
    vary=vary,
    inside={
        r"attn\.attention\.(v_proj|out_proj)\.(weight|bias)": ledger.VALUE,
        r"attn\.attention\.rotary(_emb)?\.inv_freq": ledger.FREQUENCIES,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"ln_2\.weight": ledger.AFTER,
    },
    outside={
        r"wte\.weight": ledger.EMBEDDING,
        r"ln_f\.weight": ledger.FINAL_NORM,
        r"(.+\.)?lm_head\..+": ledger.HEAD,
        r"rotary(_emb)?\.inv_freq": ledger.FREQUENCIES,
    },
).family("exaone", "Exaone", "Llama's attention by other names")
