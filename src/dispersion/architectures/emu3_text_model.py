"""Emu 3: Llama's attention with other defaults."""

from dispersion.architectures.decoder import Decoder
from dispersion.rotary import RopeRule

FAMILY = Decoder(key_heads=8, eps=1e-5, rope=RopeRule(theta=1e6)).family(
    "emu3_text_model", "Emu3Text", "as llama, the language model of Emu 3"
)
