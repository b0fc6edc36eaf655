"""Every family, found by the model_type of a config.json."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dispersion.architectures.aliases import with_own_keys
from dispersion.architectures.plans import Family, FamilyInfo, Plan
from dispersion.architectures.quantised import refuse_methods, refuse_nested_methods
from dispersion.architectures.towers import inner_type, language_model, with_the_rest
from dispersion.architectures.unsupported import REASONS
from dispersion.architectures.wrappers import WRAPPERS
from dispersion.checkpoint.text import shown
from dispersion.config import check_epsilons
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.checkpoint import Checkpoint

NAMES = (
    "afmoe",
    "albert",
    "altclip",
    "apertus",
    "arcee",
    "axk2",
    "baichuan",
    "bailing_hybrid",
    "bailing_moe",
    "bamba",
    "bart",
    "beam",
    "beit",
    "bert",
    "big_bird",
    "biogpt",
    "bitnet",
    "blenderbot",
    "blenderbot_small",
    "blip",
    "bloom",
    "chameleon",
    "chatglm",
    "chinese_clip",
    "clip",
    "clip_text_model",
    "clip_vision_model",
    "codegen",
    "cohere",
    "cohere2",
    "cohere2_moe",
    "ctrl",
    "cwm",
    "dbrx",
    "deberta",
    "deberta_v2",
    "deepseek",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "deepseek_v4",
    "diffllama",
    "dinov2",
    "dinov3_vit",
    "distilbert",
    "doge",
    "dory",
    "dots1",
    "dots3_note_text",
    "dream",
    "electra",
    "emu3_text_model",
    "ernie4_5",
    "ernie4_5_moe",
    "ernie4_5_vl_moe_text",
    "esm",
    "esmc",
    "eurobert",
    "exaone",
    "exaone4",
    "exaone_moe",
    "falcon",
    "falcon_h1",
    "flex_olmo",
    "flint",
    "fsmt",
    "gemma",
    "gemma2",
    "gemma3_text",
    "gemma3n_text",
    "gemma4_text",
    "glm",
    "glm4",
    "glm4_moe",
    "glm4v_moe_text",
    "glm4v_text",
    "glm5_next_text",
    "glm_moe_dsa",
    "gpt2",
    "gpt_bigcode",
    "gpt_neo",
    "gpt_neox",
    "gpt_neox_japanese",
    "gpt_oss",
    "gptj",
    "granite",
    "granite_swa",
    "granitemoe",
    "granitemoe_swa",
    "granitemoehybrid",
    "gte",
    "helium",
    "hrm_text",
    "hunyuan_v1_dense",
    "hunyuan_vl_text",
    "hy_v3",
    "hy_v4",
    "hyperclovax",
    "inkling2_text",
    "inkling_text",
    "internlm2",
    "internlm3",
    "internvl_vision",
    "iquestcoder",
    "jais2",
    "jamba",
    "jetmoe",
    "jina_embeddings_v3",
    "kimi_linear",
    "kolibri1",
    "laguna",
    "lara_mini",
    "layoutlmv3",
    "lfm2",
    "lfm3",
    "lilt",
    "llada",
    "llama",
    "llama4_text",
    "longcat_flash",
    "longformer",
    "longt5",
    "m2m_100",
    "marian",
    "mbart",
    "megatron_bert",
    "mellum",
    "mimo_v2_flash",
    "minicpm",
    "minicpm3",
    "minimax",
    "minimax_m2",
    "minimax_m3_vl_text",
    "ministral",
    "ministral3",
    "mistral",
    "mistral4",
    "mistral_large4_text",
    "mixtral",
    "mllama_text_model",
    "modernbert",
    "modernbert_decoder",
    "molmo2_text",
    "moonshine",
    "mpnet",
    "mpt",
    "muse_glimmer_text",
    "muse_spark_text",
    "nanochat",
    "nemotron",
    "nemotron_h",
    "nllb_moe",
    "nomic_bert",
    "olmo",
    "olmo2",
    "olmo3",
    "olmo_hybrid",
    "olmoe",
    "openai_gpt",
    "openai_privacy_filter",
    "opt",
    "orion",
    "parakeet_encoder",
    "pegasus",
    "persimmon",
    "phi",
    "phi3",
    "phimoe",
    "qwen",
    "qwen2",
    "qwen2_moe",
    "qwen2_vl_text",
    "qwen3",
    "qwen3_5_moe_text",
    "qwen3_5_text",
    "qwen3_moe",
    "qwen3_next",
    "qwen3_vl_text",
    "qwen4_exp_text",
    "recurrent_gemma",
    "rembert",
    "roberta",
    "roberta_prelayernorm",
    "sam",
    "sarvam_mla",
    "sarvam_moe",
    "seed_oss",
    "siglip",
    "siglip_text_model",
    "siglip_vision_model",
    "smollm3",
    "solar_open",
    "speech_to_text",
    "squeezebert",
    "stablelm",
    "starcoder2",
    "step3p5",
    "swin",
    "swinv2",
    "t5",
    "t5gemma",
    "t5gemma2",
    "timesfm2_5",
    "trocr",
    "vaultgemma",
    "videomae",
    "vit",
    "voxtral_realtime_text",
    "wav2vec2",
    "wav2vec2_bert",
    "wav2vec2_conformer",
    "wavlm",
    "whisper",
    "xglm",
    "xlm_roberta_xl",
    "xverse",
    "zamba",
    "zamba2",
    "zaya",
)
"""Files of this folder that hold a family each."""


def _family(name: str) -> Family:
    found: Family = import_module(f"dispersion.architectures.{name}").FAMILY
    return found


@cache
def every_family() -> tuple[Family, ...]:
    """All of them, by name."""
    return tuple(_family(name) for name in NAMES)


def _of_type(model_type: str) -> Family | None:
    """The family of a model_type; most bear its name, so that no other file need be loaded."""
    name = model_type.replace("-", "_")
    if name in NAMES and model_type in _family(name).model_types:
        return _family(name)
    return next((f for f in every_family() if model_type in f.model_types), None)


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
    check_epsilons(checkpoint.config)
    wrapper = WRAPPERS.get(checkpoint.config.get("model_type", ""))
    if wrapper is None:
        refuse_methods(checkpoint)
        return family.read(with_own_keys(checkpoint, family.name), layers)
    inner = with_own_keys(language_model(checkpoint, wrapper), family.name)
    refuse_nested_methods(checkpoint, inner)
    return with_the_rest(family.read(inner, layers), checkpoint, inner, wrapper)


def families() -> tuple[FamilyInfo, ...]:
    """Every supported family, by name, with the models that hold one of it where they name none."""
    return tuple(
        FamilyInfo(f.name, (*f.model_types, *_wrappers(f)), f.notes) for f in every_family()
    )


def _wrappers(family: Family) -> list[str]:
    return [outer for outer, held in WRAPPERS.items() if held.inner in family.model_types]


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
        if (family := _of_type(model_type)) is not None:
            return family
        if model_type in WRAPPERS:
            return _held(config, model_type)
        nested = " (its language model is nested in text_config)" if "text_config" in config else ""
        raise UnsupportedError(
            _refusal(f"model_type {shown(repr(model_type))}{nested}", model_type)
        )
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        msg = f"architectures in config.json must be a list of names. Got {shown(repr(names))}."
        raise CheckpointError(msg)
    for family in every_family():
        if any(_prefix(name) in family.classes for name in names):
            return family
    if names:
        raise UnsupportedError(
            _refusal(f"architecture {shown(', '.join(names))}", names[0].lower())
        )
    msg = (
        "config.json must have model_type. Got neither model_type nor architectures. Add the name "
        "that `dispersion families` has for this model; where it has none, give two weight files, "
        "as in `dispersion check W_Q.npy W_K.npy`."
    )
    raise CheckpointError(msg)


def _held(config: Mapping[str, Any], model_type: str) -> Family:
    """The family of the language model in a model with images or sound."""
    inner = inner_type(config, WRAPPERS[model_type])
    if (family := _of_type(inner)) is not None:
        return family
    held = f"model_type {shown(repr(inner))}, the language model of {model_type},"
    raise UnsupportedError(_refusal(held, inner))


def _prefix(name: str) -> str:
    """Llama of LlamaForCausalLM, LlamaModel and LlamaLMHeadModel."""
    for ending in ("LMHeadModel", "Model"):
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name.partition("For")[0]


def _refusal(what: str, name: str) -> str:
    known = supported_model_types()
    if name in REASONS:
        reason = f"is not supported: {REASONS[name]}."
        return f"{what} {reason} `dispersion families` lists all {len(known)} that are."
    near = get_close_matches(name, known, n=3)
    nearest = f" Nearest: {', '.join(near)}." if near else ""
    return f"{what} is not supported.{nearest} `dispersion families` lists all {len(known)}."
