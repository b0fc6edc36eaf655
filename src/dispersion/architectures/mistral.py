"""Mistral: Llama without biases and with a sliding window on every layer."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import everywhere

FAMILY = Decoder(bias=False, key_heads=8, window=everywhere).family(
    "mistral", "Mistral", "Llama's attention within a sliding window"
)
