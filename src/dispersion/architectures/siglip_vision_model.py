"""SigLIP's image encoder, and the attention of the head that pools its patches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispersion.architectures import ledger
from dispersion.architectures.attention import Norm, Projection
from dispersion.architectures.blocks import Blocks
from dispersion.architectures.pooling_attention import PoolingAttention
from dispersion.architectures.scales import inverse_root
from dispersion.config import flag

if TYPE_CHECKING:
    from dispersion.architectures.blocks_reader import BlocksReader


def pooling(reader: BlocksReader, prefix: str) -> PoolingAttention | None:
    """The head's attention: a learned probe asks, and the encoder's normalised output answers."""
    module, size = f"{prefix}head.attention", reader.heads * reader.head_dim
    weight, bias = f"{module}.in_proj_weight", f"{module}.in_proj_bias"
    used = flag(reader.config, "vision_use_head", default=True)
    if not used or weight not in reader.checkpoint:
        return None
    query, key = (
        Projection(weight, bias, reader.heads, first=first, outputs=3 * size) for first in (0, size)
    )
    norm = f"{prefix}post_layernorm"
    return PoolingAttention(
        module=module,
        layer=reader.layers - 1,
        width=reader.width,
        head_dim=reader.head_dim,
        query=query,
        key=key,
        input_norm=Norm("layer", f"{norm}.weight", f"{norm}.bias"),
        scale=inverse_root(reader.head_dim),
        causal=False,
        known_inputs=False,
        probe=f"{prefix}head.probe",
    )


BLOCKS = Blocks(
    stack="encoder.layers",
    module="self_attn",
    norm="layer_norm1",
    eps=1e-6,
    eps_key="layer_norm_eps",
    causal=False,
    inside={
        r"self_attn\.(v_proj|out_proj)\.(weight|bias)": ledger.VALUE,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"layer_norm2\.(weight|bias)": ledger.AFTER,
    },
    outside={
        r"embeddings\..+": ledger.EMBEDDING,
        r"(post_layernorm|final_layer_norm)\.(weight|bias)": ledger.FINAL_NORM,
        r"(visual|text)_projection\.weight": ledger.HEAD,
        r"head\.attention\.out_proj\.(weight|bias)": ledger.VALUE,
        r"head\.mlp\..+": ledger.FEED_FORWARD,
        r"head\.layernorm\.(weight|bias)": ledger.AFTER,
    },
    behind=pooling,
)

FAMILY = BLOCKS.family(
    "siglip_vision_model",
    ("SiglipVision", "Siglip2Vision"),
    "LayerNorm before attention, bidirectional, no rotation; also the head that pools",
    types=("siglip_vision_model", "siglip2_vision_model"),
)
