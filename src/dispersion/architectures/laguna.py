"""Laguna: a headwise QK norm and an output gate; layers differ in their number of query heads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import FULL, SLIDING, full_where
from dispersion.checkpoint.text import shown
from dispersion.config import integer
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.sizes import Sizes
    from dispersion.architectures.windows import LayerKind

ROPE = {
    FULL: {"rope_theta": 500000.0, "partial_rotary_factor": 0.5},
    SLIDING: {"rope_theta": 10000.0, "partial_rotary_factor": 1.0},
}


def _listed(config: Mapping[str, Any], sizes: Sizes, layer: int, _: LayerKind) -> Sizes:
    key = "num_attention_heads_per_layer"
    stated = config.get(key)
    if stated is None:
        return sizes
    layers = integer(config, "num_hidden_layers")
    if not isinstance(stated, list) or len(stated) != layers:
        msg = f"{key} in config.json must list {layers} layers. Got {shown(repr(stated))}."
        raise CheckpointError(msg)
    heads = integer({key: stated[layer]}, key)
    if heads % sizes.key_heads:
        msg = (
            f"num_key_value_heads must divide {key} in config.json. "
            f"Got num_key_value_heads={sizes.key_heads}, {key}[{layer}]={heads}."
        )
        raise CheckpointError(msg)
    return replace(sizes, heads=heads)


FAMILY = Decoder(
    names={r"self_attn\.g_proj\.weight": ledger.GATE},
    qk_norm="headwise",
    head_dim=128,
    key_heads=8,
    partial=1.0,
    window=full_where(lambda *_: True, absent=512),
    rope_nested=True,
    rope_absent=ROPE,
    sizes=_listed,
).family("laguna", "Laguna", "headwise QK norm, query heads and RoPE differ by layer")
