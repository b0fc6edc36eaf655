"""Nomic BERT: norms behind each branch, RoPE, no biases; also in its own code's config dialect."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import jina_embeddings_v3
from dispersion.architectures.blocks import Keys
from dispersion.architectures.granted import check_granted
from dispersion.architectures.rotations import rope
from dispersion.rotary import RopeRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.blocks import Blocks

# Keys of the dialect of its own code, and what transformers' class takes for granted.
_GRANTED: dict[str, Any] = {
    "prenorm": False,
    "parallel_block": False,
    "qkv_proj_bias": False,
    "use_rms_norm": False,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "causal": False,
}


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """Keys of the older dialect must say what the class does."""
    check_granted(config, _GRANTED, "nomic_bert")
    return blocks


FAMILY = replace(
    jina_embeddings_v3.BLOCKS,
    module="attn",
    keys=Keys(
        ("num_hidden_layers", "n_layer"),
        ("hidden_size", "n_embd"),
        ("num_attention_heads", "n_head"),
        ("max_position_embeddings", "n_positions"),
    ),
    own_head_dim=True,
    bias=False,
    rotation=rope(RopeRule(theta=1000.0)),
    vary=vary,
).family("nomic_bert", "NomicBert", "as jina_embeddings_v3, without biases")
