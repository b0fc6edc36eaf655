"""What is peculiar to each GGUF architecture: names, order of rows, and keys of its config.

Another architecture is another line of `ARCHITECTURES`. What the metadata leaves unsaid is filled
in as llama.cpp does (src/llama-model.cpp and src/models/), since that is the code such files are
written for; where its converters drop a setting, the file's model does not have it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dispersion.checkpoint import gguf_names as names
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dispersion.checkpoint.gguf_metadata import Contents, Metadata
    from dispersion.checkpoint.gguf_names import Names

    Config = Mapping[str, Any]
    Settings = Callable[[Metadata, Config, Contents], dict[str, Any]]

Rows = Literal["as they are", "pairs", "by side", "transposed"]
RMS = ("attention.layer_norm_rms_epsilon", "rms_norm_eps")
LAYER = ("attention.layer_norm_epsilon", "layer_norm_eps")
SLIDING = ("attention.sliding_window", "attention.sliding_window_pattern")


@dataclass(frozen=True)
class Architecture:
    """One value of general.architecture.

    Attributes:
        model_type: the family that reads it.
        settings: further keys of its config, from metadata, config so far and tensors.
        names: its tensor names.
        names_with: a stem within a layer, and the names of files that have it.
        rows: how rows of query and key projections lie in the file: "pairs" where rotated pairs
            are neighbours, "by side" where all queries come first, then all keys and all values,
            "transposed" where Hugging Face stores [in, out].
        eps: keys of the norm's ε in file and config.
        reads: metadata keys beyond those that all architectures have.
        scalings: values of rope.scaling.type that are read.
        partial: whether rope.dimension_count may be smaller than a head.
        factors: tensors of divisors of the rotary frequencies that are read.
        local_base: whether sliding layers have a rotary base of their own.
        head_is_share: whether a head's size must be embedding_length / head_count.
    """

    model_type: str
    settings: Settings | None = None
    names: names.Names = names.DECODER
    names_with: tuple[str, Names] | None = None
    rows: Rows = "as they are"
    eps: tuple[str, str] | None = RMS
    reads: tuple[str, ...] = ()
    scalings: tuple[str, ...] = ("none", "linear", "yarn")
    partial: bool = False
    factors: tuple[str, ...] = ()
    local_base: bool = False
    head_is_share: bool = False

    def names_in(self, found: Contents) -> Names:
        """The names of a file with these tensors."""
        if self.names_with is not None and found.any(f"{self.names_with[0]}.weight"):
            return self.names_with[1]
        return self.names


def _llama(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    if not meta.nonzero("expert_count"):
        return {}
    return {"model_type": "mixtral", "num_local_experts": meta.integer("expert_count")}


def _layers(meta: Metadata, layers: int, period: int) -> list[str]:
    """Types of layers from the pattern in the file, or with each `period`-th one full."""
    key = "attention.sliding_window_pattern"
    pattern = meta.get(key, period)
    if isinstance(pattern, list) and len(pattern) >= layers:
        sliding = [bool(flag) for flag in pattern[:layers]]
    else:
        period = meta.integer(key, period)
        sliding = [(layer + 1) % period != 0 for layer in range(layers)]
    return ["sliding_attention" if s else "full_attention" for s in sliding]


def _gemma2(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    return {
        "query_pre_attn_scalar": _gemma_scalar(config, 46),
        "attn_logit_softcapping": meta.real("attn_logit_softcapping", 50.0),
        "sliding_window": meta.integer("attention.sliding_window", 4096),
        "layer_types": _layers(meta, config["num_hidden_layers"], 2),
    }


def _gemma3(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    layers = config["num_hidden_layers"]
    settings: dict[str, Any] = {"query_pre_attn_scalar": _gemma_scalar(config, 62)}
    if meta.get("attention.sliding_window", 0) == 0:  # 0 means none
        return settings | {"layer_types": ["full_attention"] * layers}
    return settings | {
        "sliding_window": meta.integer("attention.sliding_window"),
        "layer_types": _layers(meta, layers, 6),
        "rope_local_base_freq": meta.real("rope.freq_base_swa", 10000.0),
    }


def _gemma_scalar(config: Config, largest_model: int) -> int:
    """Files do not state s of the logit scale 1/√s: the largest (27B) model alone has another."""
    if config["num_hidden_layers"] == largest_model:
        return int(config["hidden_size"] // config["num_attention_heads"])
    return int(config["head_dim"])


def _olmo2(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    if not meta.nonzero("attention.sliding_window"):
        return {}
    return {
        "model_type": "olmo3",
        "sliding_window": meta.integer("attention.sliding_window"),
        "layer_types": _layers(meta, config["num_hidden_layers"], 4),
    }


def _gpt_oss(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    return {
        "sliding_window": meta.integer("attention.sliding_window"),
        "layer_types": _layers(meta, config["num_hidden_layers"], 2),
    }


def _granite(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    if not meta.flag("rope.scaling.finetuned", default=True):
        meta.refuse("rope.scaling.finetuned", "which switches the rotation off")
    return {
        "attention_multiplier": meta.real("attention.scale"),
        "embedding_multiplier": meta.real("embedding_scale", 1.0),
    }


def _phi3(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    key = "attention.sliding_window"
    window = meta.integer(key) if meta.nonzero(key) else 0
    if 0 < window < config["max_position_embeddings"]:
        meta.refuse(key, "which some programs apply and others ignore")
    return {"sliding_window": None}


def _cohere(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    return {"use_qk_norm": found.any("attn_q_norm.weight")}


def _stablelm(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    if found.any("attn_q_norm.weight"):
        msg = (
            "a GGUF file of StableLM stacks the norms of qk_layernorm in one tensor, "
            "attn_q_norm.weight, which is not translated. Give the safetensors."
        )
        raise UnsupportedError(msg)
    return {"use_qkv_bias": config["attention_bias"], "qk_layernorm": False}


def _bias_as(key: str) -> Settings:
    """The family's own key for whether queries and keys have biases."""

    def settings(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
        return {key: config["attention_bias"]}

    return settings


def _gpt_neox(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    return {
        "attention_bias": found.any("attn_qkv.bias"),
        "rotary_emb_base": config["rope_theta"],
        "rotary_pct": config["partial_rotary_factor"],
    }


def _falcon(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """One key head is a group of all queries."""
    if config["num_attention_heads"] % config["num_key_value_heads"]:
        meta.refuse("attention.head_count_kv", "which does not divide the number of heads")
    return {
        "new_decoder_architecture": True,
        "num_kv_heads": config["num_key_value_heads"],
        "num_ln_in_parallel_attn": 2 if found.any("attn_norm_2.weight") else 1,
        "bias": found.any("attn_qkv.bias"),
    }


def _starcoder(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    if config["num_key_value_heads"] != 1:
        meta.refuse("attention.head_count_kv", "but this architecture has one key head")
    return {"multi_query": True, **_positions(meta, config, found)}


def _phi2(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    return {"qk_layernorm": False}


def _positions(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """As many positions as the table has rows: converters cut off those before the first."""
    rows = found.rows("position_embd.weight")
    return {} if rows is None else {"max_position_embeddings": rows}


def _bert(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    causal = meta.flag("attention.causal")
    return {"is_decoder": causal, **_positions(meta, config, found)}


def _modern_bert(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Every third layer sees all tokens, from the first one on; the others half a window a side."""
    if meta.flag("attention.causal"):
        meta.refuse("attention.causal", "but only false is read for this architecture")
    layers = config["num_hidden_layers"]
    settings: dict[str, Any] = {"attention_bias": False, "global_rope_theta": config["rope_theta"]}
    if not meta.nonzero("attention.sliding_window"):
        return settings | {"layer_types": ["full_attention"] * layers}
    period = meta.integer("attention.sliding_window_pattern", 3)
    return settings | {
        "local_attention": meta.integer("attention.sliding_window"),
        "layer_types": [
            "sliding_attention" if layer % period else "full_attention" for layer in range(layers)
        ],
        "local_rope_theta": meta.real("rope.freq_base_swa"),
    }


def partial_factor(rotated: int, head_dim: int) -> float:
    """The share of a head that turns, such that head_dim times it is not below `rotated`."""
    share = rotated / head_dim
    while int(head_dim * share) < rotated:
        share = math.nextafter(share, 2.0)
    return share


ARCHITECTURES: dict[str, Architecture] = {
    "bert": Architecture(
        "bert", _bert, names.BERT, eps=LAYER, scalings=(), head_is_share=True,
    ),
    "command-r": Architecture(
        "cohere", _cohere, eps=LAYER, scalings=("none", "linear"),
    ),
    "falcon": Architecture(
        "falcon", _falcon, names.FALCON, ("attn_norm_2", names.FALCON_TWO_NORMS), "by side",
        ("attention.layer_norm_epsilon", "layer_norm_epsilon"), scalings=("none", "linear"),
        head_is_share=True,
    ),
    "gemma": Architecture("gemma", scalings=("none", "linear")),
    "gemma2": Architecture(
        "gemma2", _gemma2, names.NORMS_BEHIND,
        reads=(*SLIDING, "attn_logit_softcapping"), scalings=("none", "linear"),
    ),
    "gemma3": Architecture(
        "gemma3_text", _gemma3, names.NORMS_BEHIND, reads=SLIDING, scalings=("none", "linear"),
        local_base=True,
    ),
    "gpt-oss": Architecture("gpt_oss", _gpt_oss, names.SINKS, reads=SLIDING),
    "gpt2": Architecture(
        "gpt2", _positions, names.GPT2, None, "transposed", ("attention.layer_norm_epsilon",
        "layer_norm_epsilon"), scalings=(), head_is_share=True,
    ),
    "gptneox": Architecture(
        "gpt_neox", _gpt_neox, names.GPT_NEOX, None, "by side", LAYER,
        scalings=("none", "linear"), partial=True, head_is_share=True,
    ),
    "granite": Architecture("granite", _granite, rows="pairs"),
    "jais2": Architecture("jais2", eps=LAYER, scalings=("none", "linear")),
    "llama": Architecture("llama", _llama, rows="pairs", factors=("rope_freqs",)),
    "modern-bert": Architecture(
        "modernbert", _modern_bert, names.MODERN_BERT,
        eps=("attention.layer_norm_epsilon", "norm_eps"), reads=SLIDING, scalings=("none",),
        local_base=True, head_is_share=True,
    ),
    "nemotron": Architecture(
        "nemotron", eps=("attention.layer_norm_epsilon", "norm_eps"), partial=True,
        scalings=("none", "linear"),
    ),
    "olmo": Architecture("olmo", rows="pairs", eps=None),
    "olmo2": Architecture("olmo2", _olmo2, names.NORMS_BEHIND, reads=SLIDING),
    "olmoe": Architecture("olmoe"),
    "phi2": Architecture(
        "phi", _phi2, names.PHI, eps=LAYER, partial=True, scalings=("none", "linear"),
    ),
    "phi3": Architecture(
        "phi3", _phi3, names.FUSED, reads=SLIDING[:1], scalings=("none", "linear", "longrope"),
        partial=True, factors=("rope_factors_long", "rope_factors_short"),
    ),
    "qwen2": Architecture("qwen2"),
    "qwen2moe": Architecture("qwen2_moe", _bias_as("qkv_bias")),
    "qwen3": Architecture("qwen3"),
    "qwen3moe": Architecture("qwen3_moe"),
    "smollm3": Architecture("smollm3", rows="pairs"),
    "stablelm": Architecture(
        "stablelm", _stablelm, eps=LAYER, partial=True, scalings=("none", "linear"),
    ),
    "starcoder": Architecture(
        "gpt_bigcode", _starcoder, names.GPT2, eps=("attention.layer_norm_epsilon",
        "layer_norm_epsilon"), scalings=(), head_is_share=True,
    ),
    "starcoder2": Architecture(
        "starcoder2", _bias_as("use_bias"),
        eps=("attention.layer_norm_epsilon", "norm_epsilon"),
    ),
}  # fmt: skip
