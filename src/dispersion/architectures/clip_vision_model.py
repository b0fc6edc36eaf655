"""CLIP's image encoder."""

from dataclasses import replace

from dispersion.architectures import siglip_vision_model as siglip
from dispersion.architectures.ledger import EMBEDDING

BLOCKS = replace(
    siglip.BLOCKS,
    eps=1e-5,
    behind=None,
    outside={**siglip.BLOCKS.outside, r"pre_lay(er|r)norm\.(weight|bias)": EMBEDDING},
)

FAMILY = BLOCKS.family(
    "clip_vision_model",
    ("CLIPVision", "MetaClip2Vision"),
    "as siglip_vision_model",
    types=("clip_vision_model", "metaclip_2_vision_model"),
)
