"""GGUF metadata in the words of a Hugging Face config.json.

What the metadata leaves unsaid is filled in as llama.cpp does (src/llama-model.cpp and
src/models/), since that is the code such files are written for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

MODEL_TYPES = {"llama": "llama", "gemma3": "gemma3_text"}
GEMMA3_27B_LAYERS = 62
# Keys that would change attention logits in ways the translated families do not have.
REFUSED = (
    "attention.clamp_kqv", "attention.temperature_scale", "attention.temperature_length",
    "attention.max_alibi_bias", "attn_logit_softcapping", "attention.key_length_swa",
    "rope.scaling.alpha", "rope.scaling.yarn_log_multiplier", "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_attn_factor", "rope.dimension_sections",
)  # fmt: skip


class Metadata:
    """Typed look-ups under one architecture's prefix."""

    def __init__(self, values: dict[str, Any], architecture: str, file: str) -> None:
        self.values, self.prefix, self.file = values, architecture + ".", file

    def has(self, key: str) -> bool:
        return self.prefix + key in self.values

    def integer(self, key: str, default: int | None = None) -> int:
        """A positive integer, or a list that repeats one.

        Raises:
            CheckpointError: missing without a default, or something else.
            UnsupportedError: a list of different integers, one for each layer.
        """
        value = self.values.get(self.prefix + key, default)
        if isinstance(value, list) and value and all(type(v) is int for v in value):
            if len(set(value)) > 1:
                msg = f"{shown(self.file)}: {self.prefix}{key} differs between layers."
                raise UnsupportedError(msg)
            value = value[0]
        if type(value) is not int or not 0 < value < 2**31:
            raise self._wrong(key, "a positive integer", value)
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """A positive finite number.

        Raises:
            CheckpointError: missing without a default, or something else.
        """
        value: Any = self.values.get(self.prefix + key, default)
        if type(value) not in (int, float) or not 0 < value < math.inf:
            raise self._wrong(key, "a positive number", value)
        return float(value)

    def _wrong(self, key: str, rule: str, value: Any) -> CheckpointError:
        msg = f"{shown(self.file)}: {self.prefix}{key} must be {rule}. Got {shown(value)}."
        return CheckpointError(msg)


def translate(
    values: dict[str, Any], file: str, *, rope_factors: Sequence[float] | None, bias: bool
) -> dict[str, Any]:
    """The configuration of a `llama` or `gemma3` GGUF file.

    Gemma 3 files do not state `query_pre_attn_scalar`; llama.cpp takes hidden_size / heads for the
    62-layer model (27B) and head_dim for the others, and so does this. Divisors of the rotary
    frequencies (a `rope_freqs.weight` tensor, as Llama 3.1 has) become a `longrope` scaling
    with those factors at every length and an attention factor of 1, which is the same rotation.

    Args:
        values: metadata by full key.
        file: named in messages.
        rope_factors: the values of `rope_freqs.weight`, if there is one.
        bias: whether the query projections have a bias.

    Raises:
        UnsupportedError: another architecture, or a setting that the family does not have.
        CheckpointError: a value is missing or malformed.
    """
    architecture = values.get("general.architecture")
    if not isinstance(architecture, str):
        msg = f"{shown(file)}: general.architecture must be text. Got {shown(architecture)}."
        raise CheckpointError(msg)
    if architecture not in MODEL_TYPES:
        msg = (
            f"{shown(file)} holds the architecture {shown(architecture)}; GGUF files are read for "
            f"{', '.join(MODEL_TYPES)}. Give the model's safetensors files."
        )
        raise UnsupportedError(msg)
    meta = Metadata(values, architecture, file)
    heads, width = meta.integer("attention.head_count"), meta.integer("embedding_length")
    head_dim = meta.integer("attention.key_length", width // heads or None)
    config: dict[str, Any] = {
        "model_type": MODEL_TYPES[architecture],
        "hidden_size": width,
        "num_hidden_layers": meta.integer("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": meta.integer("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "rms_norm_eps": meta.real("attention.layer_norm_rms_epsilon"),
        "rope_theta": meta.real("rope.freq_base", 10000.0),
        "max_position_embeddings": meta.integer("context_length"),
        "attention_bias": bias,
    }
    scalar = head_dim
    if architecture == "gemma3":
        config |= _gemma3(meta, config["num_hidden_layers"])
        if config["num_hidden_layers"] == GEMMA3_27B_LAYERS:
            scalar = width // heads
        config["query_pre_attn_scalar"] = scalar
    elif meta.has("expert_count") and values[meta.prefix + "expert_count"] != 0:
        config["model_type"] = "mixtral"
        config["num_local_experts"] = meta.integer("expert_count")
    _refuse(meta, head_dim, scalar)
    scaling = _rope_scaling(meta, config, rope_factors)
    if scaling:
        config["rope_scaling"] = scaling
    return config


def _gemma3(meta: Metadata, layers: int) -> dict[str, Any]:
    if not meta.values.get(meta.prefix + "attention.sliding_window"):  # 0 means none
        return {"layer_types": ["full_attention"] * layers}
    pattern = meta.values.get(meta.prefix + "attention.sliding_window_pattern", 6)
    if isinstance(pattern, list) and len(pattern) >= layers:
        sliding = [bool(flag) for flag in pattern[:layers]]
    else:
        period = meta.integer("attention.sliding_window_pattern", 6)
        sliding = [(layer + 1) % period != 0 for layer in range(layers)]
    return {
        "sliding_window": meta.integer("attention.sliding_window"),
        "layer_types": ["sliding_attention" if s else "full_attention" for s in sliding],
        "rope_local_base_freq": meta.real("rope.freq_base_swa", 10000.0),
    }


def _refuse(meta: Metadata, head_dim: int, scalar: int) -> None:
    for key in REFUSED:
        if meta.has(key) and meta.values[meta.prefix + key] not in (0, 0.0, None):
            msg = f"{shown(meta.file)} sets {meta.prefix}{key}, which has no bound here."
            raise UnsupportedError(msg)
    if meta.values.get(meta.prefix + "attention.causal") is False:
        msg = f"{shown(meta.file)} sets {meta.prefix}attention.causal to false; only true is read."
        raise UnsupportedError(msg)
    if meta.integer("rope.dimension_count", head_dim) != head_dim:
        msg = f"{shown(meta.file)} rotates only a part of its {head_dim} head dimensions."
        raise UnsupportedError(msg)
    usual = scalar**-0.5
    if meta.has("attention.scale") and meta.values[meta.prefix + "attention.scale"] != 0:
        scale = meta.real("attention.scale")
        if abs(scale - usual) > 1e-6 * usual:  # the file's number is a float32
            msg = f"{shown(meta.file)} has the logit scale {scale}, not the family's {usual}."
            raise UnsupportedError(msg)


def _rope_scaling(
    meta: Metadata, config: dict[str, Any], factors: Sequence[float] | None
) -> dict[str, Any] | None:
    kind = meta.values.get(meta.prefix + "rope.scaling.type", "linear")
    factor = 1.0
    for key in ("rope.scale_linear", "rope.scaling.factor"):  # the second, newer key wins
        if meta.has(key) and meta.values[meta.prefix + key] != 0:
            factor = meta.real(key)
    attention = meta.real("rope.scaling.attn_factor", 1.0)
    known = (
        ("none", "linear", "yarn") if config["model_type"] != "gemma3_text" else ("none", "linear")
    )
    if kind not in known or (kind != "yarn" and attention != 1.0):
        msg = f"{shown(meta.file)} scales RoPE by {shown(kind)} with attention factor {attention}."
        msg = f"{msg} Known: {', '.join(known)}."
        raise UnsupportedError(msg)
    original = meta.integer(
        "rope.scaling.original_context_length", config["max_position_embeddings"]
    )
    if factors is not None:
        if (
            (kind != "none" and factor != 1.0)
            or kind == "yarn"
            or len(factors) * 2 != config["head_dim"]
        ):
            msg = f"{shown(meta.file)}: rope_freqs.weight does not go with its other RoPE settings."
            raise UnsupportedError(msg)
        if config["model_type"] == "gemma3_text" or not all(0 < f < math.inf for f in factors):
            msg = (
                f"{shown(meta.file)}: rope_freqs.weight must hold positive divisors, in llama only."
            )
            raise UnsupportedError(msg)
        divisors = [float(f) for f in factors]
        return {
            "rope_type": "longrope",
            "factor": 1.0,
            "short_factor": divisors,
            "long_factor": divisors,
            "attention_factor": 1.0,
            "original_max_position_embeddings": original,
        }
    if kind == "yarn":
        yarn = {
            "rope_type": "yarn",
            "factor": factor,
            "beta_fast": meta.real("rope.scaling.yarn_beta_fast", 32.0),
            "beta_slow": meta.real("rope.scaling.yarn_beta_slow", 1.0),
            "original_max_position_embeddings": original,
        }
        if attention != 1.0:  # it multiplies the usual factor, 1 + ln(factor)/10
            yarn["attention_factor"] = attention * (0.1 * math.log(max(factor, 1.0)) + 1.0)
        return yarn
    if kind == "linear" and factor != 1.0:
        return {"rope_type": "linear", "factor": factor}
    return None
