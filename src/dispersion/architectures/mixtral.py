"""Mixtral: Mistral's attention before experts; its window is set only where the config says so."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import where_stated
from dispersion.rotary import RopeRule

FAMILY = Decoder(
    rope=RopeRule(theta=1000000.0), bias=False, eps=1e-5, key_heads=8, window=where_stated
).family("mixtral", "Mixtral", "Llama's attention, within a sliding window where one is set")
