"""CLIP: a text encoder and an image encoder in one file."""

from dispersion.architectures import clip_text_model, clip_vision_model
from dispersion.architectures.two_towers import Tower, family

_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads")
_TYPES = ("clip", "clipseg", "metaclip_2", "owlvit", "owlv2")

FAMILY = family(
    "clip",
    ("CLIP", "CLIPSeg", "MetaClip2", "OwlViT", "Owlv2"),
    (
        Tower(
            "text_config",
            "text_model",
            tuple(f"{kind}_text_model" for kind in _TYPES),
            clip_text_model.BLOCKS,
            dict(zip(_SIZES, (512, 12, 8), strict=True)),
            override="text_config_dict",
        ),
        Tower(
            "vision_config",
            "vision_model",
            tuple(f"{kind}_vision_model" for kind in _TYPES),
            clip_vision_model.BLOCKS,
            dict(zip(_SIZES, (768, 12, 12), strict=True)),
            override="vision_config_dict",
        ),
    ),
    "both towers: text is causal, images are not",
    types=_TYPES,
)
