"""GLM 4.5V: biases on queries and keys, half-split partial RoPE by text's one position, experts."""

from dispersion.architectures import mrope
from dispersion.architectures.decoder import Decoder

FAMILY = mrope.family(
    "glm4v_moe_text",
    "Glm4vMoeText",
    "partial RoPE and biases, the language model of models with images",
    {"glm4v_moe_text": Decoder(bias_absent=True, eps=1e-5, key_heads=8, partial=0.5)},
)
