"""Nemotron: a LayerNorm with gain 1 + weight and a bias; half of each head turns."""

from dispersion.architectures.decoder import Decoder

FAMILY = Decoder(
    norm="layer",
    norm_parts=("weight", "bias"),
    gain_offset=1.0,
    eps=1e-5,
    eps_key="norm_eps",
    partial=0.5,
).family("nemotron", "Nemotron", "LayerNorm with gains 1 + weight and biases, partial RoPE")
