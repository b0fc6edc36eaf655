"""StableLM 2: a LayerNorm with bias; a quarter of each head turns."""

from dispersion.architectures.decoder import Decoder

FAMILY = Decoder(
    bias="use_qkv_bias",
    norm="layer",
    norm_parts=("weight", "bias"),
    eps=1e-5,
    eps_key="layer_norm_eps",
    key_heads=32,
    partial=0.25,
    refused=("qk_layernorm",),
).family("stablelm", "StableLm", "LayerNorm with bias, partial RoPE; qk_layernorm is refused")
