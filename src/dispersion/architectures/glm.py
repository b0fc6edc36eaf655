"""GLM 4 9B: Llama's attention with biases; neighbouring coordinates of half of each head turn."""

from dispersion.architectures.decoder import Decoder
from dispersion.rotary import RopeRule

FAMILY = Decoder(
    bias_absent=True,
    eps=1.5625e-7,
    head_dim=128,
    key_heads=2,
    partial=0.5,
    rope=RopeRule(interleaved=True),
).family("glm", "Glm", "biases on queries and keys, interleaved partial RoPE")
