"""ERNIE 4.5: Llama's attention with neighbouring coordinates turning together."""

from dispersion.architectures.decoder import Decoder
from dispersion.rotary import RopeRule

FAMILY = Decoder(
    bias="use_bias",
    eps=1e-5,
    head_dim=128,
    key_heads=2,
    rope=RopeRule(theta=500000.0, interleaved=True),
).family("ernie4_5", "Ernie4_5", "Llama's attention with interleaved RoPE")
