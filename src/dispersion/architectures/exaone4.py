"""EXAONE 4: no norm before attention, a headwise QK norm; beside sliding layers, full ones rest.

A layer that rests turns no query or key. Where `sliding_window` is null, every layer is full and
rotates.
"""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.resting import still_beside_sliding
from dispersion.architectures.windows import full_every

FAMILY = Decoder(
    bias=False,
    pre_norm=False,
    qk_norm="headwise",
    eps=1e-5,
    key_heads=32,
    window=still_beside_sliding(full_every(4, "sliding_window_pattern")),
).family(
    "exaone4",
    "Exaone4",
    "no norm before attention, headwise QK norm; RoPE on sliding layers, or on all without any",
)
