"""Qwen 3 VL and Qwen 3 Omni: Qwen 3's attention, turned by text's one position."""

from dataclasses import replace

from dispersion.architectures import mrope
from dispersion.architectures.decoder import Decoder
from dispersion.rotary import RopeRule

RULES = Decoder(qk_norm="headwise", head_dim=128, key_heads=32, rope=RopeRule(theta=500000.0))

FAMILY = mrope.family(
    "qwen3_vl_text",
    "Qwen3VLText",
    "as qwen3, the language model of models with images",
    {
        "qwen3_vl_text": RULES,
        "qwen3_vl_moe_text": replace(RULES, head_dim=None, key_heads=16),
        "qwen3_omni_moe_text": replace(RULES, head_dim=None, key_heads=4, rope=RopeRule(theta=1e6)),
    },
)
