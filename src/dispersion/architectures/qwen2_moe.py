"""Qwen 2 MoE: Qwen 2 with a key for the biases, and another rule for which layers slide."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import alternate_first_layers

FAMILY = Decoder(
    bias="qkv_bias", bias_absent=True, key_heads=16, window=alternate_first_layers
).family("qwen2_moe", "Qwen2Moe", "Llama's attention with biases on queries and keys")
