"""Flint: a headwise QK norm and a learned sink for each head; only sliding layers rotate."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.resting import still_where_full
from dispersion.architectures.windows import full_where


def _full(layer: int, layers: int) -> bool:
    return layer < 2 or layer % 4 == 1 or layer == layers - 1


FAMILY = Decoder(
    qk_norm="headwise",
    head_dim=128,
    key_heads=4,
    sinks=True,
    sink_name="softmax_offset",
    window=still_where_full(full_where(_full, absent=513)),
).family("flint", "Flint", "headwise QK norm and a learned sink logit; RoPE on sliding layers only")
