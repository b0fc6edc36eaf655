"""Helium: Llama's attention with neighbouring coordinates turning together."""

from dispersion.architectures.decoder import Decoder
from dispersion.rotary import RopeRule

FAMILY = Decoder(
    eps=1e-8, head_dim=128, key_heads=20, rope=RopeRule(theta=100000.0, interleaved=True)
).family("helium", "Helium", "Llama's attention with interleaved RoPE")
