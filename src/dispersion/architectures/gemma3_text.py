"""Gemma 3, alone or beside a tower for images: gains are 1 + weight, QK norm, two RoPE bases.

Its config has a soft-cap key that its code never applies, so none is read here.
"""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import full_every
from dispersion.rotary import RopeRule

FAMILY = Decoder(
    gain_offset=1.0,
    qk_norm="headwise",
    heads=8,
    head_dim=256,
    key_heads=4,
    scale_key=("query_pre_attn_scalar", 256.0),
    window=full_every(6, "sliding_window_pattern"),
    rope=RopeRule(theta=1e6, local_key="rope_local_base_freq", local_theta=1e4),
    bidirectional="halved",
    scaled_embedding=True,
).family(
    "gemma3_text",
    "Gemma3",
    "headwise QK norm, gains 1 + weight, sliding except each 6th layer",
)
