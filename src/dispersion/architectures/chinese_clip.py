"""Chinese CLIP: BERT and CLIP's image encoder in one file."""

from dataclasses import replace

from dispersion.architectures import clip_vision_model, electra, megatron_bert
from dispersion.architectures.two_towers import Tower, family

_SIZES = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}

FAMILY = family(
    "chinese_clip",
    ("ChineseCLIP",),
    (
        Tower(
            "text_config",
            "text_model",
            ("chinese_clip_text_model",),
            replace(electra.BLOCKS, tokens=None, vary=megatron_bert.vary),
            _SIZES,
        ),
        Tower(
            "vision_config",
            "vision_model",
            ("chinese_clip_vision_model",),
            clip_vision_model.BLOCKS,
            _SIZES,
        ),
    ),
    "both towers: text is read by BERT",
)
