"""Qwen 3 MoE: Qwen 3's attention; a window holds on every layer or on none."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import where_used

FAMILY = Decoder(qk_norm="headwise", key_heads=4, window=where_used).family(
    "qwen3_moe", "Qwen3Moe", "headwise QK norm before RoPE"
)
