"""Every family, found by the model_type of a config.json."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispersion.architectures import (
    bert,
    chameleon,
    clip,
    clip_text_model,
    clip_vision_model,
    codegen,
    cohere,
    dbrx,
    dinov2,
    distilbert,
    electra,
    esm,
    falcon,
    gemma,
    gemma2,
    gemma3_text,
    gpt2,
    gpt_bigcode,
    gpt_neo,
    gpt_neox,
    gpt_oss,
    gptj,
    granite,
    jais2,
    llama,
    mistral,
    mixtral,
    modernbert,
    nemotron,
    olmo,
    olmo2,
    olmo3,
    olmoe,
    opt,
    persimmon,
    phi,
    phi3,
    phimoe,
    qwen2,
    qwen2_moe,
    qwen3,
    qwen3_moe,
    roberta,
    siglip,
    siglip_text_model,
    siglip_vision_model,
    smollm3,
    stablelm,
    starcoder2,
    vit,
    whisper,
)
from dispersion.architectures.plans import Family, FamilyInfo, Plan
from dispersion.architectures.quantised import refuse_methods
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from dispersion.checkpoint import Checkpoint

FAMILIES: tuple[Family, ...] = tuple(
    module.FAMILY
    for module in (
        bert,
        chameleon,
        clip,
        clip_text_model,
        clip_vision_model,
        codegen,
        cohere,
        dbrx,
        dinov2,
        distilbert,
        electra,
        esm,
        falcon,
        gemma,
        gemma2,
        gemma3_text,
        gpt2,
        gpt_bigcode,
        gpt_neo,
        gpt_neox,
        gpt_oss,
        gptj,
        granite,
        jais2,
        llama,
        mistral,
        mixtral,
        modernbert,
        nemotron,
        olmo,
        olmo2,
        olmo3,
        olmoe,
        opt,
        persimmon,
        phi,
        phi3,
        phimoe,
        qwen2,
        qwen2_moe,
        qwen3,
        qwen3_moe,
        roberta,
        siglip,
        siglip_text_model,
        siglip_vision_model,
        smollm3,
        stablelm,
        starcoder2,
        vit,
        whisper,
    )
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
    return family.read(checkpoint, layers)


def families() -> tuple[FamilyInfo, ...]:
    """Every supported family, by name."""
    return tuple(FamilyInfo(f.name, f.model_types, f.notes) for f in FAMILIES)


def supported_model_types() -> tuple[str, ...]:
    """Every supported value of model_type, sorted."""
    return tuple(sorted(name for family in FAMILIES for name in family.model_types))


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
        nested = " (its language model is nested in text_config)" if "text_config" in config else ""
        raise UnsupportedError(_refusal(f"model_type {shown(repr(model_type))}{nested}"))
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        msg = f"architectures in config.json must be a list of names. Got {shown(repr(names))}."
        raise CheckpointError(msg)
    for family in FAMILIES:
        if any(_prefix(name) in family.classes for name in names):
            return family
    if names:
        raise UnsupportedError(_refusal(f"architecture {shown(', '.join(names))}"))
    msg = "config.json must have model_type. Got neither model_type nor architectures; add it."
    raise CheckpointError(msg)


def _prefix(name: str) -> str:
    """Llama of LlamaForCausalLM, LlamaModel and LlamaLMHeadModel."""
    for ending in ("LMHeadModel", "Model"):
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name.partition("For")[0]


def _refusal(what: str) -> str:
    names = ", ".join(supported_model_types())
    return f"{what} is not supported. Supported model types: {names}."
