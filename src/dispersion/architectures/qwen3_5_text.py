"""Qwen 3.5, text only or the language model of one with images: Qwen 3 Next's attention.

Text turns by one position alone; the positions of images in `mrope_section` are not looked at.
"""

from dataclasses import replace

from dispersion.architectures.qwen3_next import RULES

FAMILY = replace(RULES, key_heads=4).family(
    "qwen3_5_text",
    "Qwen3_5",
    "as qwen3_next, before one feed-forward part",
)
