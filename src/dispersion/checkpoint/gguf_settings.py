"""Keys that one family's config has beyond those of all, from GGUF metadata and tensors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.gguf_metadata import MOST_LAYERS
from dispersion.checkpoint.text import shown
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from dispersion.checkpoint.gguf_architecture import Config, Settings
    from dispersion.checkpoint.gguf_metadata import Contents, Metadata


TEMPERATURE, MULTIPLIER = "attention.temperature_scale", "rope.scaling.yarn_log_multiplier"
BUCKETS = "attention.relative_buckets_count"
ALIBI, CLAMP = "attention.max_alibi_bias", "attention.clamp_kqv"


def llama(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Mixtral is the same architecture with experts."""
    if not meta.nonzero("expert_count"):
        return {}
    return {"model_type": "mixtral", "num_local_experts": meta.integer("expert_count")}


def granite(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """Factors on logits and embedding."""
    if not meta.flag("rope.scaling.finetuned", default=True):
        meta.refuse("rope.scaling.finetuned", "which switches the rotation off")
    return granite_factors(meta, config, found)


def granite_factors(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """What multiplies logits and embedding."""
    return {
        "attention_multiplier": meta.real("attention.scale"),
        "embedding_multiplier": meta.real("embedding_scale", 1.0),
    }


def phi3(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """No window that anything could be cut off by."""
    key = "attention.sliding_window"
    window = meta.integer(key) if meta.nonzero(key) else 0
    if 0 < window < config["max_position_embeddings"]:
        meta.refuse(key, "which some programs apply and others ignore")
    return {"sliding_window": None}


def cohere(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """A QK norm where there are its tensors."""
    return {"use_qk_norm": found.any("attn_q_norm.weight")}


def chameleon(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Whether the norm in front of attention stands behind it."""
    return {"swin_norm": meta.flag("swin_norm")}


def stablelm(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Biases where there are their tensors; no QK norm."""
    if found.any("attn_q_norm.weight"):
        msg = (
            "a GGUF file of StableLM stacks the norms of qk_layernorm in one tensor, "
            "attn_q_norm.weight, which is not translated. Give the safetensors."
        )
        raise UnsupportedError(msg)
    return {"use_qkv_bias": config["attention_bias"], "qk_layernorm": False}


def bias_as(key: str) -> Settings:
    """The family's own key for whether queries and keys have biases."""

    def settings(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
        return {key: config["attention_bias"]}

    return settings


def gpt_neox(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Its own keys for what all have."""
    return {
        "attention_bias": found.any("attn_qkv.bias"),
        "rotary_emb_base": config["rope_theta"],
        "rotary_pct": config["partial_rotary_factor"],
    }


def falcon(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """One key head is a group of all queries."""
    if config["num_attention_heads"] % config["num_key_value_heads"]:
        meta.refuse("attention.head_count_kv", "which does not divide the number of heads")
    return {
        "new_decoder_architecture": True,
        "num_kv_heads": config["num_key_value_heads"],
        "num_ln_in_parallel_attn": 2 if found.any("attn_norm_2.weight") else 1,
        "bias": found.any("attn_qkv.bias"),
    }


def starcoder(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """One key head."""
    if config["num_key_value_heads"] != 1:
        meta.refuse("attention.head_count_kv", "but this architecture has one key head")
    return {"multi_query": True, **positions(meta, config, found)}


def phi2(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """No QK norm."""
    return {"qk_layernorm": False}


def positions(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """As many positions as the table has rows: converters cut off those before the first."""
    rows = found.rows("position_embd.weight")
    return {} if rows is None else {"max_position_embeddings": rows}


def bert(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """An encoder, or a decoder where the file says that it is causal."""
    causal = meta.flag("attention.causal")
    return {"is_decoder": causal, **positions(meta, config, found)}


def partial_factor(rotated: int, head_dim: int) -> float:
    """The share of a head that turns, such that head_dim times it is not below `rotated`."""
    share = rotated / head_dim
    while int(head_dim * share) < rotated:
        share = math.nextafter(share, 2.0)
    return share


def bailing(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """QK norms and biases where there are their tensors."""
    return {
        "use_qk_norm": found.any("attn_q_norm.weight"),
        "use_qkv_bias": found.any("attn_qkv.bias"),
    }


def minicpm(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """A factor on embeddings, which older files leave to the program."""
    return {"scale_emb": meta.real("embedding_scale", 12.0)}


def of_one_group(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """As many key heads as query heads: the rows of fewer lie in an order of their own."""
    if config["num_key_value_heads"] != config["num_attention_heads"]:
        meta.refuse("attention.head_count_kv", "but only as many as query heads are read")
    return {}


def baichuan(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """Llama's attention in 32 layers, ALiBi in 40: llama.cpp tells them by nothing else."""
    of_one_group(meta, config, found)
    layers = config["num_hidden_layers"]
    if layers not in (32, 40):
        meta.refuse("block_count", "but heads of 32 layers turn and those of 40 have ALiBi")
    return {} if layers == 32 else {"model_type": "baichuan"}


def unturned(meta: Metadata, config: Config) -> dict[str, Any]:  # noqa: ARG001
    """The key by which the family tells the model with ALiBi."""
    if config["model_type"] != "baichuan":
        return {}
    positions = config["max_position_embeddings"]
    return {"max_position_embeddings": None, "model_max_length": positions}


def two_sided(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Queries that see later tokens too, as the program takes from the file."""
    if meta.flag("attention.causal", default=True):
        meta.refuse("attention.causal", "but only false is read for this architecture")
    return {}


def bloom(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Its own keys for what all have."""
    return {
        "n_head": config["num_attention_heads"],
        "n_layer": config["num_hidden_layers"],
    }


def _own_keys(config: Config, attention: dict[str, Any]) -> dict[str, Any]:
    """The sizes under the keys of MPT and DBRX."""
    return {
        "d_model": config["hidden_size"],
        "n_heads": config["num_attention_heads"],
        "n_layers": config["num_hidden_layers"],
        "max_seq_len": config["max_position_embeddings"],
        "attn_config": attention,
    }


def mpt(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """ALiBi, or learned positions; perhaps a clamp."""
    alibi = meta.nonzero(ALIBI)
    if alibi and found.rows("position_embd.weight") is not None:
        meta.refuse(ALIBI, "beside a table of positions")
    attention = {
        "alibi": alibi,
        "alibi_bias_max": meta.real(ALIBI) if alibi else 8.0,
        "clip_qkv": meta.real(CLAMP) if meta.nonzero(CLAMP) else None,
        "kv_n_heads": config["num_key_value_heads"],
    }
    return _own_keys(config, attention)


def dbrx(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Its own keys for what all have, and a clamp."""
    attention = {
        "clip_qkv": meta.real(CLAMP) if meta.nonzero(CLAMP) else None,
        "kv_n_heads": config["num_key_value_heads"],
        "rope_theta": config["rope_theta"],
    }
    return _own_keys(config, attention)


def mistral3(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:  # noqa: ARG001
    """Ministral 3 where a temperature grows with the position, else Llama's attention."""
    return {} if meta.nonzero(TEMPERATURE) else {"model_type": "llama"}


def tempered(meta: Metadata, config: Config) -> dict[str, Any]:
    """The scaling of a rotation together with the temperature's growth."""
    scaling = config.get("rope_scaling")
    if scaling is not None and scaling["rope_type"] == "yarn":
        if meta.get(MULTIPLIER) != 1.0:  # with 1, cos and sin have no factor
            meta.refuse(MULTIPLIER, "but only 1 is read beside yarn")
        scaling = scaling | {"mscale": 1.0, "mscale_all_dim": 1.0}
    if not meta.nonzero(TEMPERATURE):
        return {"rope_scaling": scaling} if scaling else {}
    if scaling is None:
        meta.refuse(TEMPERATURE, "without the yarn scaling whose original length it refers to")
    growth = {"llama_4_scaling_beta": meta.real(TEMPERATURE), "rope_theta": config["rope_theta"]}
    return {"rope_scaling": None, "rope_parameters": scaling | growth}


def t5(meta: Metadata, config: Config, found: Contents) -> dict[str, Any]:
    """Its own keys for what all have, and a relative bias that all layers of a stack share."""
    if meta.nonzero("attention.scale"):
        meta.refuse("attention.scale", "but logits of this architecture have none")
    own = [n for n in found.shapes if "attn_rel_b." in n and "cross" not in n and ".0." not in n]
    if own:
        msg = (
            f"{shown(meta.file)} holds the tensor {shown(own[0])}: layers with relative biases of "
            "their own (UMT5) are not supported."
        )
        raise UnsupportedError(msg)
    layers = config["num_hidden_layers"]
    return {
        "d_model": config["hidden_size"],
        "d_kv": config["head_dim"],
        "num_heads": config["num_attention_heads"],
        "num_layers": layers,
        "num_decoder_layers": meta.integer("decoder_block_count", layers, largest=MOST_LAYERS),
        "relative_attention_num_buckets": meta.integer(BUCKETS),
        "relative_attention_max_distance": 128,  # what the program has, whatever a model says
    }
