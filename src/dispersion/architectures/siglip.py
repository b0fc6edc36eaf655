"""SigLIP: a text encoder and an image encoder in one file, both bidirectional."""

from dispersion.architectures import siglip_text_model, siglip_vision_model
from dispersion.architectures.two_towers import Tower, family

_ABSENT = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}

FAMILY = family(
    "siglip",
    ("Siglip", "Siglip2"),
    (
        Tower(
            "text_config",
            "text_model",
            ("siglip_text_model", "siglip2_text_model"),
            siglip_text_model.BLOCKS,
            _ABSENT,
        ),
        Tower(
            "vision_config",
            "vision_model",
            ("siglip_vision_model", "siglip2_vision_model"),
            siglip_vision_model.BLOCKS,
            _ABSENT,
        ),
    ),
    "both towers, and the head that pools images",
    types=("siglip", "siglip2"),
)
