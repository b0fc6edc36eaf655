"""Qwen 2 and 2.5 VL and Qwen 2.5 Omni: Qwen 2's attention, turned by text's one position."""

from dataclasses import replace

from dispersion.architectures import mrope
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import after_first
from dispersion.rotary import RopeRule

RULES = Decoder(bias=True, key_heads=8, eps=1e-5, window=after_first(80), rope=RopeRule(theta=1e6))

FAMILY = mrope.family(
    "qwen2_vl_text",
    "Qwen2VLText",
    "as qwen2, the language model of models with images",
    {
        "qwen2_vl_text": RULES,
        "qwen2_5_vl_text": RULES,
        "qwen2_5_omni_text": replace(RULES, key_heads=4, eps=1e-6, window=after_first(28, 32768)),
    },
    undivided=("qwen2_vl_text", "qwen2_5_vl_text"),
    renamed=("qwen2_vl_text", "qwen2_5_vl_text"),
)
