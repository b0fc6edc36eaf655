"""Ling 1 and 2 with experts: a fused projection, and in Ling 2 headwise QK norm before RoPE.

Read off programs that run it; transformers has its hybrid successor (`bailing_hybrid`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.attention import Norm
from dispersion.architectures.blocks import Blocks
from dispersion.architectures.granted import check_granted, check_scaling
from dispersion.architectures.layouts import stacked
from dispersion.architectures.rotations import rope
from dispersion.config import flag
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """`use_qk_norm`, either key of biases, and the share of a head that turns."""
    check_granted(config, {"use_sliding_window": False}, "bailing_moe")
    normed = flag(config, "use_qk_norm", default=False)
    if normed:
        check_scaling(config, ("linear", "dynamic", "yarn"), "bailing_moe")
    else:  # code that agrees on the factor of Ling 1's YaRN was not found
        check_scaling(config, ("linear", "dynamic"), "bailing_moe without use_qk_norm")
    if normed and config.get("partial_rotary_factor") is None:
        msg = (
            "partial_rotary_factor must be in config.json for bailing_moe with use_qk_norm, as "
            "programs differ on what its absence means. Got none: not supported."
        )
        raise UnsupportedError(msg)
    biased = any(flag(config, key, default=False) for key in ("use_bias", "use_qkv_bias"))
    return replace(blocks, bias=biased, qk_norm=blocks.qk_norm if normed else None)


FAMILY = Blocks(
    stack="layers",
    module="attention",
    norm="input_layernorm",
    norm_kind="rms",
    norm_parts=("weight",),
    sides=("query_key_value",),
    layout=stacked,
    key_heads="num_key_value_heads",
    own_head_dim=True,
    qk_norm=Norm("rms", "{word}_layernorm.weight"),
    eps=1e-6,
    eps_key="rms_norm_eps",
    rotation=rope(partial=1.0),
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
).family("bailing_moe", "BailingMoe", "a fused projection; headwise QK norm in Ling 2")
