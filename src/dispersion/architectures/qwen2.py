"""Qwen 2 and 2.5: Llama with biases on q and k, which no key of the config mentions."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import after_full_layers

FAMILY = Decoder(bias=True, key_heads=32, window=after_full_layers).family(
    "qwen2", "Qwen2", "Llama's attention with biases on queries and keys"
)
