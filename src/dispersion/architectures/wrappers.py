"""Models with images or sound, by model_type: where their language model lies in config and file.

Read off transformers' configuration classes and the names under which its models are saved, but for
the one that says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

BESIDE = ("model.language_model.", "language_model.")
TEXT_MODEL = ("model.text_model.", "text_model.")
# Files of older versions have no module of its own for the language model.
BARE = ("model.language_model.", "language_model.", "model.", "")
THINKER = tuple(f"{outer}{root}" for outer in ("thinker.", "") for root in BARE)


@dataclass(frozen=True)
class Wrapper:
    """One model_type that holds a language model.

    Attributes:
        inner: model_type of the language model where its config names none.
        fixed: whether it is that one whatever its config names.
        keys: path of the inner config.
        flat: whether older configs hold its keys beside those of the towers.
        roots: what names of the language model's tensors begin with, in files of several versions.
        aliases: what an inner config may call a model_type.
        absent: values of absent keys of the inner config, where they are not those of its class.
        classes: model_type by the class that an inner config names first, where that decides.
        both_ways: whether tokens of a prompt see later ones too.
    """

    inner: str
    fixed: bool = False
    keys: tuple[str, ...] = ("text_config",)
    flat: bool = False
    roots: tuple[str, ...] = BESIDE
    aliases: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, Any] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)
    both_ways: bool = False


def _all(names: str, wrapper: Wrapper) -> dict[str, Wrapper]:
    return dict.fromkeys(names.split(), wrapper)


_VOXTRAL = {
    "hidden_size": 3072,
    "num_hidden_layers": 30,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e8,
    "head_dim": 128,
}
_REALTIME = {
    "hidden_size": 3072,
    "num_hidden_layers": 26,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e6,
    "head_dim": 128,
    "sliding_window": 8192,
}
_GLM_ASR = {
    "hidden_size": 2048,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
}
_DOCLING = {
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-5,
    "attention_multiplier": 0.015625,
    "embedding_multiplier": 12.0,
}
_FIXED = {
    # Their own classes are those of these families under another name.
    "aria": "llama",
    "granite4_vision": "granite",
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "llama4": "llama4_text",
    "minimax_m3_vl": "minimax_m3_vl_text",
    "mllama": "mllama_text_model",
    "muse_glimmer": "muse_glimmer_text",
    "muse_spark": "muse_spark_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen4_exp": "qwen4_exp_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "glm4v": "glm4v_text",
    "glm4v_moe": "glm4v_moe_text",
    "glm_ocr": "glm_ocr_text",
    "glm5_next": "glm5_next_text",
}

WRAPPERS: dict[str, Wrapper] = {
    **{outer: Wrapper(inner, fixed=True) for outer, inner in _FIXED.items()},
    **_all("llava llava_next llava_next_video video_llava vipllava", Wrapper("llama")),
    **_all("deepseek_vl deepseek_vl_hybrid janus omniasr perception_lm", Wrapper("llama")),
    **_all("llava_onevision internvl ovis2 got_ocr2 pp_chart2table", Wrapper("qwen2")),
    **_all("fast_vlm video_llama_3 vibevoice vibevoice_asr", Wrapper("qwen2")),
    **_all("qwen2_audio audioflamingo3 musicflamingo", Wrapper("qwen2")),
    **_all("qwen3_asr fun_asr_nano moss_transcribe_diarize", Wrapper("qwen3")),
    **_all("lighton_ocr qianfan_ocr", Wrapper("qwen3")),
    **_all("aya_vision cohere2_vision", Wrapper("cohere2")),
    **_all("granite_speech granite_speech_plus", Wrapper("granite")),
    **_all("minicpm_ocr minicpmv4_6 minicpmv4_7", Wrapper("qwen3_5_text")),
    **_all("glm46v glmga", Wrapper("glm4v_text")),
    **_all("idefics3 smolvlm", Wrapper("llama", roots=TEXT_MODEL)),
    **_all("blip-2 instructblip instructblipvideo", Wrapper("opt")),
    **_all(
        "qwen2_vl qwen2_5_vl",
        Wrapper("qwen2_vl_text", fixed=True, flat=True, roots=BARE),
    ),
    "dots3_note": Wrapper("dots3_note_text", fixed=True, flat=True, roots=BARE),
    "emu3": Wrapper("emu3_text_model", fixed=True, roots=TEXT_MODEL),
    "ernie4_5_vl_moe": Wrapper("ernie4_5_vl_moe_text", fixed=True, roots=BARE),
    "exaone4_5": Wrapper("exaone4", aliases={"exaone4_5_text": "exaone4"}),
    "fuyu": Wrapper("persimmon"),
    "gemma4_unified": Wrapper("gemma4_text", fixed=True, absent={"sliding_window": 1024}),
    "glmasr": Wrapper("llama", absent=_GLM_ASR),
    "granite_docling": Wrapper("granite", fixed=True, roots=TEXT_MODEL, absent=_DOCLING),
    "hunyuan_vl": Wrapper("hunyuan_vl_text", fixed=True, flat=True, roots=BARE),
    "idefics2": Wrapper("mistral", roots=TEXT_MODEL),
    # Its own code, which is none of transformers', holds these classes of transformers.
    "inkling2": Wrapper("inkling2_text", fixed=True, roots=("model.llm.",)),
    "inkling_mm_model": Wrapper("inkling_text", fixed=True, roots=("model.llm.",)),
    "internvl_chat": Wrapper(
        "qwen2",
        keys=("llm_config",),
        classes={"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2"},
    ),
    "kimi_k25": Wrapper("deepseek_v3", aliases={"kimi_k2": "deepseek_v3"}),
    "lfm2_vl": Wrapper("lfm2"),
    "lfm3_vl": Wrapper("lfm3"),
    "mistral3": Wrapper("mistral"),
    "mistral_large4": Wrapper("mistral_large4_text", fixed=True, roots=("",)),
    "modernvbert": Wrapper("modernbert", roots=TEXT_MODEL),
    "paligemma": Wrapper("gemma", both_ways=True),
    "molmo2": Wrapper("molmo2_text", fixed=True, roots=("model.transformer.", "transformer.")),
    "paddleocr_vl": Wrapper("paddleocr_vl_text", fixed=True, flat=True, roots=BARE),
    "qwen2_5_omni_thinker": Wrapper("qwen2_5_omni_text", fixed=True, roots=THINKER),
    "qwen3_omni_moe_thinker": Wrapper("qwen3_omni_moe_text", fixed=True, roots=THINKER),
    "qwen2_5_omni": Wrapper(
        "qwen2_5_omni_text", fixed=True, keys=("thinker_config", "text_config"), roots=THINKER
    ),
    "qwen3_omni_moe": Wrapper(
        "qwen3_omni_moe_text", fixed=True, keys=("thinker_config", "text_config"), roots=THINKER
    ),
    "step3p7": Wrapper("step3p5", fixed=True, roots=BARE),
    "shieldgemma2": Wrapper("gemma3_text"),
    "voxtral_realtime": Wrapper("voxtral_realtime_text", absent=_REALTIME),
    "voxtral": Wrapper("llama", absent=_VOXTRAL),
}
