"""Qwen 3.5 with experts: the same attention, other defaults."""

from dispersion.architectures.qwen3_next import RULES

FAMILY = RULES.family("qwen3_5_moe_text", "Qwen3_5Moe", "as qwen3_next")
