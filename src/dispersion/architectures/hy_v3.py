"""Hunyuan 3 (hy_v3): a headwise QK norm before the rotation, and experts."""

from dispersion.architectures.decoder import Decoder
from dispersion.rotary import RopeRule

FAMILY = Decoder(
    qk_norm="headwise", eps=1e-5, head_dim=128, key_heads=8, rope=RopeRule(theta=11158840.0)
).family("hy_v3", "HYV3", "headwise QK norm before RoPE")
