"""BioGPT: a LayerNorm in front of attention, biases, learned positions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks
from dispersion.config import flag

if TYPE_CHECKING:
    from collections.abc import Mapping


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """Nothing is said of token ids where `scale_embedding` multiplies their rows by a root."""
    scaled = flag(config, "scale_embedding", default=True)
    return replace(blocks, tokens=None) if scaled else blocks


FAMILY = Blocks(
    stack="layers",
    module="self_attn",
    norm="self_attn_layer_norm",
    eps_key=None,  # norms take no ε from the config
    table="embed_positions.weight",
    table_before=2,
    positions_absent=1024,
    tokens="embed_tokens.weight",
    vary=vary,
    inside={
        r"self_attn\.(v_proj|out_proj)\.(weight|bias)": ledger.VALUE,
        r"fc[12]\.(weight|bias)": ledger.FEED_FORWARD,
        r"final_layer_norm\.(weight|bias)": ledger.AFTER,
    },
    outside={
        r"embed_tokens\.weight": ledger.EMBEDDING,
        r"embed_positions\.weight": "position embedding",
        r"layer_norm\.(weight|bias)": ledger.FINAL_NORM,
        r"(.+\.)?output_projection\..+|(.+\.)?(classifier|score)\..+": ledger.HEAD,
    },
).family("biogpt", "BioGpt", "LayerNorm before attention, biases, learned positions")
