"""ERNIE 4.5 with experts: the same attention, other defaults."""

from dispersion.architectures.decoder import Decoder
from dispersion.rotary import RopeRule

FAMILY = Decoder(
    bias="use_bias",
    eps=1e-5,
    key_heads=4,
    rope=RopeRule(theta=500000.0, interleaved=True),
).family("ernie4_5_moe", "Ernie4_5_Moe", "Llama's attention with interleaved RoPE")
