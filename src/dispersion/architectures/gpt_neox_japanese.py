"""GPT-NeoX Japanese: GPT-NeoX's attention without biases; all of a head turns unless stated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks
from dispersion.architectures.layouts import grouped
from dispersion.architectures.rotations import rope
from dispersion.config import positive

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.rotary import Rotary


def _rotation(config: Mapping[str, Any], layer_type: str, head_dim: int) -> Rotary | None:
    """By the old names, the only ones that the class knows outside `rope_parameters`."""
    old = {
        "rope_theta": positive(config, "rotary_emb_base", 10000.0),
        "partial_rotary_factor": positive(config, "rotary_pct", 1.0),
    }
    return rope(partial=1.0)({**config, **old}, layer_type, head_dim)


FAMILY = Blocks(
    stack="layers",
    module="attention",
    norm="input_layernorm",
    sides=("query_key_value",),
    layout=grouped,
    bias=False,
    eps_key="layer_norm_eps",
    rotation=_rotation,
    tokens="embed_in.weight",
    inside={
        r"attention\.dense\.weight|attention\.dense_bias": ledger.VALUE,
        r"attention\.(bias|masked_bias)": ledger.MASK,
        r"attention\.rotary_emb\.inv_freq": ledger.FREQUENCIES,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"post_attention_layernorm\.(weight|bias)": ledger.AFTER,
    },
    outside={
        r"embed_in\.weight": ledger.EMBEDDING,
        r"final_layer_norm\.(weight|bias)": ledger.FINAL_NORM,
        r"(.+\.)?(embed_out|lm_head)\..+": ledger.HEAD,
        r"rotary_emb\.inv_freq": ledger.FREQUENCIES,
    },
).family("gpt_neox_japanese", "GPTNeoXJapanese", "LayerNorm, projections fused head by head, RoPE")
