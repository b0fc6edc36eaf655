"""Mellum 2: headwise QK norm; sliding and full layers turn by rotations of their own."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import FULL, SLIDING, full_where

ROPE = {FULL: {"rope_theta": 500000.0}, SLIDING: {"rope_theta": 10000.0}}
FAMILY = Decoder(
    qk_norm="headwise",
    head_dim=128,
    key_heads=4,
    window=full_where(lambda *_: True, absent=1024),
    rope_nested=True,
    rope_absent=ROPE,
).family("mellum", "Mellum", "headwise QK norm, RoPE differs by layer type")
