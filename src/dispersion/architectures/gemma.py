"""Gemma 1: gains are 1 + weight and embeddings are multiplied by √width."""

from dispersion.architectures.decoder import Decoder

FAMILY = Decoder(gain_offset=1.0, head_dim=256, key_heads=16, scaled_embedding=True).family(
    "gemma", "Gemma", "Llama's attention behind norms with gains 1 + weight"
)
