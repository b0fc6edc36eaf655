"""dots.llm1: a headwise QK norm; with a window, layers from `max_window_layers` on slide."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import from_layer

FAMILY = Decoder(
    qk_norm="headwise", key_heads=32, window=from_layer("max_window_layers", 62)
).family("dots1", "Dots1", "headwise QK norm before RoPE")
