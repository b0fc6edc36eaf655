"""Cohere 2 (Command R7B, Command A): Cohere 1 with sliding layers, which alone rotate."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.resting import still_where_full
from dispersion.architectures.windows import full_every
from dispersion.rotary import RopeRule

FAMILY = Decoder(
    norm="layer",
    eps=1e-5,
    eps_key="layer_norm_eps",
    window=still_where_full(full_every(4, "sliding_window_pattern")),
    rope=RopeRule(interleaved=True),
).family("cohere2", "Cohere2", "LayerNorm without bias, interleaved RoPE on sliding layers only")
