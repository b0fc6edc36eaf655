"""DINOv2: ViT with other names of norms, and scaled branches."""

from dataclasses import replace

from dispersion.architectures import ledger, vit

BLOCKS = replace(
    vit.BLOCKS,
    norm="norm1",
    eps=1e-6,
    inside={
        **vit.BLOCKS.inside,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"norm2\.(weight|bias)": ledger.AFTER,
        r"layer_scale[12]\.lambda1": "scales what attention and feed-forward put out",
    },
)

FAMILY = BLOCKS.family(
    "dinov2",
    ("Dinov2", "Dinov2WithRegisters"),
    "as vit, LayerNorm before attention, bidirectional",
    types=("dinov2", "dinov2_with_registers"),
)
