"""OLMo 1: Llama's attention behind a LayerNorm that has no parameters."""

from dispersion.architectures.decoder import Decoder

FAMILY = Decoder(norm="layer", norm_parts=(), eps=1e-5, eps_key=None, clip_key="clip_qkv").family(
    "olmo", "Olmo", "LayerNorm without gain or bias, RoPE, clip_qkv"
)
