"""Seed-OSS: Llama's attention with biases on queries, keys and values."""

from dispersion.architectures.decoder import Decoder

FAMILY = Decoder(bias_absent=True, head_dim=128, key_heads=8).family(
    "seed_oss", "SeedOss", "Llama's attention with biases on queries and keys"
)
