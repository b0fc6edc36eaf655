"""Qwen 2 and 2.5 VL, Qwen 2.5 Omni, PaddleOCR VL: Qwen 2's attention, turned by one position."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures import mrope
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import FULL, after_first, kinds_of
from dispersion.rotary import RopeRule

if TYPE_CHECKING:
    from dispersion.architectures.windows import Config, LayerKind


def full(config: Config, layers: int) -> tuple[LayerKind, ...]:
    """Every layer sees every key, which `layer_types` may say too."""
    return kinds_of(config, [FULL] * layers, None)


RULES = Decoder(bias=True, key_heads=8, eps=1e-5, window=after_first(80), rope=RopeRule(theta=1e6))

FAMILY = mrope.family(
    "qwen2_vl_text",
    "Qwen2VLText",
    "as qwen2, the language model of models with images",
    {
        "qwen2_vl_text": RULES,
        "qwen2_5_vl_text": RULES,
        "paddleocr_vl_text": replace(
            RULES,
            bias="use_bias",
            head_dim=128,
            key_heads=2,
            window=full,
            rope=RopeRule(theta=500000.0),
        ),
        "qwen2_5_omni_text": replace(RULES, key_heads=4, eps=1e-6, window=after_first(28, 32768)),
    },
    undivided=("qwen2_vl_text", "qwen2_5_vl_text"),
    renamed=("qwen2_vl_text", "qwen2_5_vl_text"),
)
