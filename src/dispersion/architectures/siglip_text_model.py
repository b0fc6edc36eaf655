"""SigLIP's text encoder: bidirectional, with learned positions."""

from dataclasses import replace

from dispersion.architectures import siglip_vision_model as siglip
from dispersion.architectures.ledger import HEAD

BLOCKS = replace(
    siglip.BLOCKS,
    table="embeddings.position_embedding.weight",
    positions_absent=64,
    tokens="embeddings.token_embedding.weight",
    behind=None,
    outside={**siglip.BLOCKS.outside, r"head\.(weight|bias)": HEAD},
)

FAMILY = BLOCKS.family(
    "siglip_text_model",
    ("SiglipText", "Siglip2Text"),
    "LayerNorm before attention, bidirectional, learned positions",
    types=("siglip_text_model", "siglip2_text_model"),
)
