"""Llama 1 to 3 and the many models that use its code."""

from dispersion.architectures.decoder import Decoder

FAMILY = Decoder().family(
    "llama", "Llama", "RMSNorm before attention, grouped keys, RoPE with every scaling"
)
