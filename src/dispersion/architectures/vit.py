"""ViT and its like: vision encoders with a LayerNorm in front of attention."""

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks

BLOCKS = Blocks(
    stack="encoder.layer",
    module="attention.attention",
    norm="layernorm_before",
    sides=("query", "key"),
    bias="qkv_bias",
    eps=1e-12,
    eps_key="layer_norm_eps",
    causal=False,
    inside={
        r"attention\.attention\.value\.(weight|bias)": ledger.VALUE,
        r"attention\.output\.dense\.(weight|bias)": ledger.VALUE,
        r"(intermediate|output)\.dense\.(weight|bias)": ledger.FEED_FORWARD,
        r"layernorm_after\.(weight|bias)": ledger.AFTER,
    },
    outside={
        r"embeddings\..+": ledger.EMBEDDING,
        r"layernorm\.(weight|bias)": ledger.FINAL_NORM,
        r"pooler\..+": "pooler",
        r"(cls_|distillation_)?classifier\..+|(head|neck|auxiliary_head)\..+": ledger.HEAD,
        # The attention of what ViT-MAE is trained with is refused.
        r"decoder\.(?!.+\.attention\.).+": ledger.HEAD,
        r"(class_labels|bbox)_.+": ledger.HEAD,
    },
)

FAMILY = BLOCKS.family(
    "vit",
    ("ViT", "AST", "DeiT", "DPT", "IJepa", "ViTMAE", "ViTMSN", "Vilt", "Vivit", "Yolos"),
    "LayerNorm before attention, bidirectional, no rotation",
    types=(
        "vit",
        "audio-spectrogram-transformer",
        "deit",
        "dpt",
        "ijepa",
        "vit_mae",
        "vit_msn",
        "vilt",
        "vivit",
        "yolos",
    ),
)
