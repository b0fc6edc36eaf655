"""CLIP's text encoder: causal, with learned positions."""

from dataclasses import replace

from dispersion.architectures import siglip_vision_model as siglip

BLOCKS = replace(
    siglip.BLOCKS,
    eps=1e-5,
    causal=True,
    table="embeddings.position_embedding.weight",
    positions_absent=77,
    tokens="embeddings.token_embedding.weight",
)

FAMILY = BLOCKS.family(
    "clip_text_model",
    ("CLIPText", "MetaClip2Text"),
    "LayerNorm before attention, causal, learned positions",
    types=("clip_text_model", "metaclip_2_text_model"),
)
