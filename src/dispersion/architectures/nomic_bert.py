"""Nomic BERT: norms behind each branch, RoPE, no biases; also in its own code's config dialect."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import jina_embeddings_v3
from dispersion.architectures.blocks import Keys
from dispersion.architectures.rotations import rope
from dispersion.checkpoint.text import shown
from dispersion.errors import UnsupportedError
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
    for key, granted in _GRANTED.items():
        value = config.get(key, granted)
        if value != granted:
            must, got = json.dumps(granted), shown(repr(value))
            msg = f"{key} in config.json must be {must} for nomic_bert. Got {got}: not supported."
            raise UnsupportedError(msg)
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
