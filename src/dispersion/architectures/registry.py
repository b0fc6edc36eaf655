"""Every family, found by the model_type of a config.json."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from dispersion.architectures.plans import Family, FamilyInfo, Plan
from dispersion.architectures.quantised import refuse_methods
from dispersion.architectures.towers import language_model
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from dispersion.checkpoint import Checkpoint

NAMES = (
    "afmoe",
    "albert",
    "apertus",
    "arcee",
    "bart",
    "beam",
    "beit",
    "bert",
    "bitnet",
    "blenderbot",
    "blenderbot_small",
    "blip",
    "bloom",
    "chameleon",
    "chinese_clip",
    "clip",
    "clip_text_model",
    "clip_vision_model",
    "codegen",
    "cohere",
    "cohere2",
    "cohere2_moe",
    "dbrx",
    "deepseek_v2",
    "deepseek_v3",
    "diffllama",
    "dinov2",
    "dinov3_vit",
    "distilbert",
    "dots1",
    "electra",
    "ernie4_5",
    "ernie4_5_moe",
    "esm",
    "eurobert",
    "exaone4",
    "exaone_moe",
    "falcon",
    "falcon_h1",
    "flex_olmo",
    "flint",
    "gemma",
    "gemma2",
    "gemma3_text",
    "gemma3n_text",
    "gemma4_text",
    "glm",
    "glm4",
    "glm4_moe",
    "gpt2",
    "gpt_bigcode",
    "gpt_neo",
    "gpt_neox",
    "gpt_oss",
    "gptj",
    "granite",
    "granite_swa",
    "granitemoe",
    "granitemoe_swa",
    "granitemoehybrid",
    "gte",
    "helium",
    "hunyuan_v1_dense",
    "hy_v3",
    "jais2",
    "jina_embeddings_v3",
    "kimi_linear",
    "kolibri1",
    "laguna",
    "lara_mini",
    "layoutlmv3",
    "lfm2",
    "lfm3",
    "llama",
    "llama4_text",
    "longcat_flash",
    "m2m_100",
    "marian",
    "mbart",
    "megatron_bert",
    "mimo_v2_flash",
    "minicpm3",
    "minimax",
    "minimax_m2",
    "ministral3",
    "mistral",
    "mistral4",
    "mixtral",
    "modernbert",
    "moonshine",
    "mpnet",
    "mpt",
    "muse_glimmer_text",
    "muse_spark_text",
    "nanochat",
    "nemotron",
    "nomic_bert",
    "olmo",
    "olmo2",
    "olmo3",
    "olmo_hybrid",
    "olmoe",
    "openai_privacy_filter",
    "opt",
    "pegasus",
    "persimmon",
    "phi",
    "phi3",
    "phimoe",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_5_moe_text",
    "qwen3_5_text",
    "qwen3_moe",
    "qwen3_next",
    "recurrent_gemma",
    "rembert",
    "roberta",
    "roberta_prelayernorm",
    "seed_oss",
    "siglip",
    "siglip_text_model",
    "siglip_vision_model",
    "smollm3",
    "solar_open",
    "speech_to_text",
    "stablelm",
    "starcoder2",
    "step3p5",
    "t5",
    "t5gemma",
    "vaultgemma",
    "videomae",
    "vit",
    "wav2vec2",
    "wavlm",
    "whisper",
    "xlm_roberta_xl",
)
"""Files of this folder that hold a family each."""

FAMILIES: tuple[Family, ...] = tuple(
    import_module(f"dispersion.architectures.{name}").FAMILY for name in NAMES
)


def plan(checkpoint: Checkpoint, *, layers: frozenset[int] | None = None) -> Plan:
    """Find a checkpoint's attention heads and account for every other tensor.

    Reads the config and the file's header; weights are read when heads are built.

    Args:
        checkpoint: an opened checkpoint.
        layers: the layers to read, or None for all.

    Raises:
        UnsupportedError: the family, the quantisation or a variant is not supported.
        CheckpointError: config and file disagree, or a value is malformed.
        ArgumentError: a layer asked for does not exist.
    """
    family = _find(checkpoint)
    refuse_methods(checkpoint)
    if checkpoint.config.get("model_type") not in family.nested:
        return family.read(checkpoint, layers)
    inner, towers = language_model(checkpoint)
    if checkpoint.config["text_config"].get("quantization_config"):
        refuse_methods(inner)
    found = family.read(inner, layers)
    return replace(found, skipped=(*found.skipped, *towers))


def families() -> tuple[FamilyInfo, ...]:
    """Every supported family, by name."""
    return tuple(FamilyInfo(f.name, (*f.model_types, *f.nested), f.notes) for f in FAMILIES)


def supported_model_types() -> tuple[str, ...]:
    """Every supported value of model_type, sorted."""
    return tuple(sorted(name for family in families() for name in family.model_types))


def _find(checkpoint: Checkpoint) -> Family:
    config = checkpoint.config
    model_type = config.get("model_type")
    if model_type is not None and not isinstance(model_type, str):
        msg = f"model_type in config.json must be a name. Got {model_type!r}."
        raise CheckpointError(msg)
    if model_type is not None:
        for family in FAMILIES:
            if model_type in family.model_types:
                return family
            if model_type in family.nested:
                if not isinstance(config.get("text_config"), dict):
                    got = shown(repr(config.get("text_config")))
                    msg = f"text_config in config.json must be an object. Got {got}."
                    raise CheckpointError(msg)
                return family
        nested = " (its language model is nested in text_config)" if "text_config" in config else ""
        raise UnsupportedError(
            _refusal(f"model_type {shown(repr(model_type))}{nested}", model_type)
        )
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        msg = f"architectures in config.json must be a list of names. Got {shown(repr(names))}."
        raise CheckpointError(msg)
    for family in FAMILIES:
        if any(_prefix(name) in family.classes for name in names):
            return family
    if names:
        raise UnsupportedError(
            _refusal(f"architecture {shown(', '.join(names))}", names[0].lower())
        )
    msg = "config.json must have model_type. Got neither model_type nor architectures; add it."
    raise CheckpointError(msg)


def _prefix(name: str) -> str:
    """Llama of LlamaForCausalLM, LlamaModel and LlamaLMHeadModel."""
    for ending in ("LMHeadModel", "Model"):
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name.partition("For")[0]


def _refusal(what: str, name: str) -> str:
    known = supported_model_types()
    near = get_close_matches(name, known, n=3)
    nearest = f" Nearest: {', '.join(near)}." if near else ""
    return f"{what} is not supported.{nearest} `dispersion families` lists all {len(known)}."
