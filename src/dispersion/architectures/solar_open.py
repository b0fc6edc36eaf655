"""Solar Open: Llama's attention before experts; part of each head may turn."""

from dispersion.architectures.decoder import Decoder
from dispersion.rotary import RopeRule

FAMILY = Decoder(
    eps=1e-5, head_dim=128, key_heads=8, partial=1.0, rope=RopeRule(theta=1000000.0)
).family("solar_open", "SolarOpen", "Llama's attention")
