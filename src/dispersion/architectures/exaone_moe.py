"""EXAONE 4 with experts (K-EXAONE): the same attention behind an RMSNorm."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.resting import still_beside_sliding
from dispersion.architectures.windows import full_every

FAMILY = Decoder(
    bias=False,
    qk_norm="headwise",
    eps=1e-5,
    key_heads=32,
    window=still_beside_sliding(full_every(4, "sliding_window_pattern")),
).family(
    "exaone_moe", "ExaoneMoe", "headwise QK norm; RoPE on sliding layers, or on all without any"
)
