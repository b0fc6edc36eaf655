"""Sizes that language models take where the config nested in another one is silent.

Many files state of an inner config only what differs from its class: width, layers and query heads
of the classes are here, what else they take is said by each family.
"""

from __future__ import annotations

_KEYS = ("hidden_size", "num_hidden_layers", "num_attention_heads")
_CLASSES = {
    "cohere": (8192, 40, 64),
    "cohere2": (8192, 40, 64),
    "deepseek_v3": (7168, 61, 128),
    "dots3_note_text": (5120, 46, 128),
    "emu3_text_model": (4096, 32, 32),
    "ernie4_5": (1024, 18, 16),
    "ernie4_5_moe": (2560, 28, 20),
    "ernie4_5_vl_moe_text": (2560, 28, 20),
    "exaone4": (4096, 32, 32),
    "gemma": (3072, 28, 16),
    "gemma2": (2304, 26, 8),
    "gemma3_text": (2304, 26, 8),
    "gemma3n_text": (2048, 35, 8),
    "gemma4_text": (2304, 30, 8),
    "glm": (4096, 40, 32),
    "glm4": (4096, 40, 32),
    "glm4_moe": (4096, 46, 96),
    "glm4v_moe_text": (4096, 46, 96),
    "glm4v_text": (4096, 40, 32),
    "glm5_next_text": (4096, 45, 64),
    "glm_ocr_text": (1024, 16, 16),
    "gpt_neox": (6144, 44, 64),
    "gpt_oss": (2880, 36, 64),
    "granite": (4096, 32, 32),
    "granitemoehybrid": (4096, 32, 32),
    "hunyuan_vl_text": (4096, 32, 32),
    "lfm2": (2560, 32, 32),
    "lfm3": (2048, 24, 16),
    "llama": (4096, 32, 32),
    "llama4_text": (5120, 48, 40),
    "minimax_m3_vl_text": (6144, 60, 64),
    "ministral3": (4096, 34, 32),
    "mistral": (4096, 32, 32),
    "mistral4": (4096, 36, 32),
    "mistral_large4_text": (6144, 72, 64),
    "mixtral": (4096, 32, 32),
    "mllama_text_model": (4096, 40, 32),
    "modernbert": (768, 22, 12),
    "molmo2_text": (4096, 36, 32),
    "muse_glimmer_text": (6656, 52, 32),
    "muse_spark_text": (8192, 62, 128),
    "olmo": (4096, 32, 32),
    "olmo2": (4096, 32, 32),
    "opt": (768, 12, 12),
    "paddleocr_vl_text": (1024, 18, 16),
    "persimmon": (4096, 36, 64),
    "phi": (2048, 24, 32),
    "phi3": (3072, 32, 32),
    "qwen2": (4096, 32, 32),
    "qwen2_5_omni_text": (3584, 28, 28),
    "qwen2_moe": (2048, 24, 16),
    "qwen2_vl_text": (8192, 80, 64),
    "qwen3": (4096, 32, 32),
    "qwen3_5_moe_text": (2048, 40, 16),
    "qwen3_5_text": (4096, 32, 16),
    "qwen3_moe": (2048, 24, 32),
    "qwen3_omni_moe_text": (2048, 28, 28),
    "qwen3_vl_moe_text": (2048, 24, 16),
    "qwen3_vl_text": (4096, 32, 32),
    "smollm3": (2048, 36, 16),
    "stablelm": (2560, 32, 32),
    "step3p5": (4096, 45, 64),
    "voxtral_realtime_text": (4096, 32, 32),
}

SIZES: dict[str, dict[str, int]] = {
    name: dict(zip(_KEYS, sizes, strict=True)) for name, sizes in _CLASSES.items()
}
