"""StarCoder 2: Llama's attention with biases, behind a LayerNorm."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import where_stated

FAMILY = Decoder(
    bias="use_bias",
    bias_absent=True,
    norm="layer",
    norm_parts=("weight", "bias"),
    eps=1e-5,
    eps_key="norm_epsilon",
    key_heads=2,
    window=where_stated,
).family("starcoder2", "Starcoder2", "LayerNorm with bias, biases on queries and keys, RoPE")
