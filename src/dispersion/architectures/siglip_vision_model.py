"""SigLIP's image encoder; its pooling head has attention of its own, which is refused by name."""

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks

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
    },
)

FAMILY = BLOCKS.family(
    "siglip_vision_model", "SiglipVision", "LayerNorm before attention, bidirectional, no rotation"
)
