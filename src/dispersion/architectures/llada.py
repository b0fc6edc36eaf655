"""LLaDA, a language model by diffusion: Llama's attention, to both sides.

Read off the code published with the models, which transformers does not have. Its projections
stand in the layer itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks, Keys
from dispersion.architectures.granted import check_granted
from dispersion.architectures.rotations import rope
from dispersion.config import flag

if TYPE_CHECKING:
    from collections.abc import Mapping

# What the class takes where a key is absent, and what is read.
_ABSENT: dict[str, Any] = {
    "block_type": "sequential",
    "layer_norm_type": "default",
    "rope": False,
}
_GRANTED: dict[str, Any] = {
    "block_type": "llama",
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "bias_for_layer_norm": False,
    "rope": True,
    "rope_scaling": None,
    "alibi": False,
    "attention_layer_norm": False,
    "input_emb_norm": False,
    "block_group_size": 1,
}


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """Either key of biases; other variants of its blocks are refused."""
    check_granted({**_ABSENT, **config}, _GRANTED, "llada")
    if config.get("n_kv_heads") is None and flag(config, "multi_query_attention", default=False):
        blocks = replace(blocks, key_heads=1)
    biased = any(flag(config, key, default=False) for key in ("include_bias", "include_qkv_bias"))
    return replace(blocks, bias=biased)


FAMILY = Blocks(
    stack="blocks",
    module="",
    norm="attn_norm",
    norm_kind="rms",
    norm_parts=("weight",),
    keys=Keys(("n_layers",), ("d_model",), ("n_heads",), ("max_sequence_length",)),
    key_heads="n_kv_heads",
    eps=1e-5,
    eps_key="rms_norm_eps",
    rotation=rope(),
    causal=False,
    tokens="wte.weight",
    vary=vary,
    inside={
        r"(v_proj|attn_out)\.(weight|bias)": ledger.VALUE,
        r"(ff_proj|up_proj|ff_out)\.(weight|bias)": ledger.FEED_FORWARD,
        r"ff_norm\.weight": ledger.AFTER,
    },
    outside={
        r"wte\.weight": ledger.EMBEDDING,
        r"ln_f\.weight": ledger.FINAL_NORM,
        r"ff_out\.weight": ledger.HEAD,
    },
).family("llada", "LLaDA", "Llama's attention, to both sides")
