"""Lara Mini: headwise QK norm; sliding layers turn, full ones rest, others are gated delta nets."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.hybrids import LINEAR, Mixed
from dispersion.architectures.resting import still_where_full
from dispersion.architectures.windows import FULL, SLIDING

PATTERN = (LINEAR, SLIDING, LINEAR, FULL, SLIDING)


def _silent(_: object, layers: int) -> list[str]:
    return [PATTERN[i % len(PATTERN)] for i in range(layers)]


FAMILY = Decoder(
    qk_norm="headwise",
    head_dim=128,
    key_heads=4,
    window=still_where_full(Mixed(_silent, window=512).rule()),
).family(
    "lara_mini", "LaraMini", "headwise QK norm, RoPE on sliding layers; linear ones are skipped"
)
