"""CLIP: a text encoder and an image encoder in one file."""

from dispersion.architectures import clip_text_model, clip_vision_model
from dispersion.architectures.two_towers import Tower, family

_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads")

FAMILY = family(
    "clip",
    ("CLIP", "MetaClip2", "CLIPSeg"),
    (
        Tower(
            "text_config",
            "text_model",
            ("clip_text_model", "metaclip_2_text_model", "clipseg_text_model"),
            clip_text_model.BLOCKS,
            dict(zip(_SIZES, (512, 12, 8), strict=True)),
            override="text_config_dict",
        ),
        Tower(
            "vision_config",
            "vision_model",
            ("clip_vision_model", "metaclip_2_vision_model", "clipseg_vision_model"),
            clip_vision_model.BLOCKS,
            dict(zip(_SIZES, (768, 12, 12), strict=True)),
            override="vision_config_dict",
        ),
    ),
    "both towers: text is causal, images are not",
    types=("clip", "clipseg", "metaclip_2"),
)
