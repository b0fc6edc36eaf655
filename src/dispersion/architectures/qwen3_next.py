"""Qwen 3 Next: gates inside q_proj, gains 1 + weight; three of four layers are gated delta nets."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.hybrids import attending_every

RULES = Decoder(
    gain_offset=1.0,
    qk_norm="headwise",
    gated=True,
    head_dim=256,
    key_heads=2,
    partial=0.25,
    window=attending_every(4, "full_attention_interval"),
)

FAMILY = RULES.family(
    "qwen3_next",
    "Qwen3Next",
    "headwise QK norm, gains 1 + weight, partial RoPE; linear layers are skipped",
)
