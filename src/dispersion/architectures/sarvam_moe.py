"""Sarvam 30B: headwise QK norm before RoPE, one projection of queries, keys and values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.attention import Norm
from dispersion.architectures.blocks import Blocks
from dispersion.architectures.layouts import stacked
from dispersion.architectures.rotations import rope
from dispersion.config import flag
from dispersion.rotary import RopeRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """`use_qk_norm`, and the older name of the key of biases."""
    if not flag(config, "use_qk_norm", default=True):
        blocks = replace(blocks, qk_norm=None)
    return replace(blocks, bias="use_qkv_bias") if "use_qkv_bias" in config else blocks


_FAMILY = Blocks(
    stack="layers",
    module="attention",
    norm="input_layernorm",
    norm_kind="rms",
    norm_parts=("weight",),
    sides=("query_key_value",),
    layout=stacked,
    key_heads="num_key_value_heads",
    key_heads_absent=4,
    own_head_dim=True,
    bias="attention_bias",
    bias_absent=False,
    qk_norm=Norm("rms", "{word}_layernorm.weight"),
    eps=1e-6,
    eps_key="rms_norm_eps",
    rotation=rope(RopeRule(theta=8000000.0), partial=1.0),
    tokens="word_embeddings.weight",
    vary=vary,
    inside={
        r"attention\.dense\.(weight|bias)": ledger.VALUE,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"post_attention_layernorm\.weight": ledger.AFTER,
    },
    outside={
        r"word_embeddings\.weight": ledger.EMBEDDING,
        r"norm\.weight": ledger.FINAL_NORM,
        r"(.+\.)?lm_head\..+": ledger.HEAD,
    },
).family("sarvam_moe", "SarvamMoE", "headwise QK norm before RoPE, a fused projection")


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config that may be silent on the size of a head."""
    config = {"head_dim": 64, **checkpoint.config}
    return _FAMILY.read(replace(checkpoint, config=config), layers)


FAMILY = replace(_FAMILY, read=read)
