"""Qwen 3: an RMS norm with one gain for all heads on each query and key, before the rotation."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import after_full_layers

FAMILY = Decoder(qk_norm="headwise", head_dim=128, key_heads=32, window=after_full_layers).family(
    "qwen3", "Qwen3", "headwise QK norm before RoPE"
)
