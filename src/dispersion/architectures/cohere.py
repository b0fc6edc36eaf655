"""Cohere (Command R): a LayerNorm with a gain alone, and RoPE on neighbouring coordinates."""

from dispersion.architectures.decoder import Decoder
from dispersion.rotary import RopeRule

FAMILY = Decoder(
    norm="layer",
    eps=1e-5,
    eps_key="layer_norm_eps",
    rope=RopeRule(theta=500000.0, interleaved=True),
    stacked_key="use_qk_norm",
).family(
    "cohere",
    "Cohere",
    "LayerNorm without bias, interleaved RoPE, with use_qk_norm a LayerNorm per head",
)
