"""OPT: a LayerNorm in front of attention, or (350m) behind each block."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks
from dispersion.config import flag, integer

if TYPE_CHECKING:
    from collections.abc import Mapping


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """`do_layer_norm_before` and `layer_norm_elementwise_affine` of the config."""
    if not flag(config, "layer_norm_elementwise_affine", default=True):
        blocks = replace(blocks, norm_parts=())
    width = integer(config, "hidden_size", 768)
    if integer(config, "word_embed_proj_dim", width) != width:
        blocks = replace(blocks, tokens=None)  # a projection stands between
    if flag(config, "do_layer_norm_before", default=True):
        return blocks
    # What the first layer reads, token plus position, no norm caps.
    behind = {
        r"self_attn_layer_norm\.(weight|bias)": ledger.AFTER,
        r"final_layer_norm\.(weight|bias)": ledger.UNASKED,
    }
    inside = INSIDE | behind
    return replace(blocks, norm="final_layer_norm", post_norm=True, inside=inside, tokens=None)


INSIDE = {
    r"self_attn\.(v_proj|out_proj)\.(weight|bias)": ledger.VALUE,
    r"fc[12]\.(weight|bias)": ledger.FEED_FORWARD,
    r"final_layer_norm\.(weight|bias)": ledger.AFTER,
}
FAMILY = Blocks(
    stack="layers",
    module="self_attn",
    norm="self_attn_layer_norm",
    bias="enable_bias",
    eps_key=None,
    table="embed_positions.weight",
    table_before=2,
    positions_absent=2048,
    tokens="embed_tokens.weight",
    vary=vary,
    inside=INSIDE,
    outside={
        r"embed_tokens\.weight": ledger.EMBEDDING,
        r"embed_positions\.weight": "position embedding",
        r"project_in\.weight": ledger.EMBEDDING,
        r"final_layer_norm\.(weight|bias)": ledger.FINAL_NORM,
        r"project_out\.weight|(.+\.)?lm_head\..+": ledger.HEAD,
    },
).family("opt", "OPT", "LayerNorm before attention; where it stands behind, no cap on layer 0")
