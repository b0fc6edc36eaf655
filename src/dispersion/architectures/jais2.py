"""Jais 2: Llama's attention with biases, behind a LayerNorm with bias."""

from dispersion.architectures.decoder import Decoder

FAMILY = Decoder(
    bias_absent=True,
    norm="layer",
    norm_parts=("weight", "bias"),
    eps=1e-5,
    eps_key="layer_norm_eps",
).family("jais2", "Jais2", "LayerNorm with bias, biases on queries and keys, RoPE")
