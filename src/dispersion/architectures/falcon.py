"""Falcon: one projection for q, k and v in three layouts, RoPE or ALiBi.

ALiBi is added before the logit scale. transformers' eager attention adds it twice, its default
(scaled_dot_product_attention) once; once is what is certified.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.alibi import bloom_slope, in_bfloat16
from dispersion.architectures.blocks import Blocks, Keys
from dispersion.architectures.layouts import grouped
from dispersion.architectures.rotations import rope
from dispersion.architectures.scales import times
from dispersion.checkpoint.text import shown
from dispersion.config import flag, integer
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.position_bias import LinearBias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.enclosure import Enclosure

# Positions and slopes are rounded to bfloat16, and so is their product: two roundings of 2^-9.
BFLOAT16 = 2.0**-8 + 2.0**-16


# The model_types of the files' own code, before transformers had the class: for Falcon 7B and 40B.
_SINGLE, _GROUPED = "RefinedWebModel", "RefinedWeb"


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """The layout and the norm by `new_decoder_architecture` and `multi_query`; ALiBi or RoPE."""
    if config.get("model_type") in (_SINGLE, _GROUPED):
        return _older(config, blocks)
    if _switch(config, "alibi", default=False):
        # Bounds over token ids know of no biases.
        blocks = replace(blocks, rotation=None, position_bias=_bias, tokens=None)
    if not _switch(config, "new_decoder_architecture", default=False):
        single = _switch(config, "multi_query", default=True)
        if not single:
            _check_key_heads(config)
        return replace(blocks, key_heads=1 if single else None)
    # A group of queries for each key head; by default the feed-forward part has a norm of its own.
    blocks = replace(blocks, key_heads="num_kv_heads")
    if integer(config, "num_ln_in_parallel_attn", 2) != 2:
        return blocks
    if not _switch(config, "parallel_attn", default=True):
        msg = (
            "parallel_attn in config.json must be true with new_decoder_architecture and two norms."
            " Got false: not supported."
        )
        raise UnsupportedError(msg)
    return replace(blocks, norm="ln_attn")


def _check_key_heads(config: Mapping[str, Any]) -> None:
    heads = integer(config, "num_attention_heads")
    if integer(config, "num_kv_heads", heads) != heads:
        msg = (
            "num_kv_heads in config.json must be num_attention_heads without multi_query and "
            f"new_decoder_architecture. Got {config['num_kv_heads']} and {heads}."
        )
        raise CheckpointError(msg)


def _bias(heads: int, scale: Enclosure, head: int) -> LinearBias:
    return LinearBias(times(in_bfloat16(bloom_slope(heads, head)), scale), BFLOAT16)


def _older(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """What the files' own code does with these configs: one variant of each model_type."""
    kind = config["model_type"]
    grouped_keys = kind == _GROUPED
    wanted: dict[str, bool | None] = {"alibi": False, "parallel_attn": True}
    if not grouped_keys:
        wanted |= {"multi_query": True, "n_head_kv": None}
    # It knows no other rotation than the default one.
    wanted |= dict.fromkeys(("rope_theta", "rope_scaling", "rope_parameters"))
    for key, value in wanted.items():
        if config.get(key) is not value:
            rule = "absent" if value is None else str(value).lower()
            msg = (
                f"{key} in config.json must be {rule} for model_type {kind}. "
                f"Got {shown(repr(config.get(key)))}: not supported."
            )
            raise UnsupportedError(msg)
    keys = Keys(("n_layer",), ("hidden_size", "n_embed"), ("n_head",))
    if not grouped_keys:
        return replace(blocks, keys=keys, key_heads=1)
    integer(config, "n_head_kv")
    return replace(blocks, keys=keys, key_heads="n_head_kv", norm="ln_attn")


def _switch(config: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """A flag whose null the class takes for false."""
    return flag(config, key, default=default and key not in config)


FAMILY = Blocks(
    stack="h",
    module="self_attention",
    norm="input_layernorm",
    near=("ln_attn",),
    keys=Keys(width=("hidden_size", "n_embed")),
    sides=("query_key_value",),
    layout=grouped,
    bias="bias",
    bias_absent=False,
    rotation=rope(),
    tokens="word_embeddings.weight",
    vary=vary,
    inside={
        r"self_attention\.dense\.(weight|bias)": ledger.VALUE,
        r"self_attention\.rotary_emb\.inv_freq": ledger.FREQUENCIES,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"(ln_mlp|post_attention_layernorm)\.(weight|bias)": ledger.AFTER,
    },
    outside={
        r"word_embeddings\.weight": ledger.EMBEDDING,
        r"ln_f\.(weight|bias)": ledger.FINAL_NORM,
        r"lm_head\..+": ledger.HEAD,
    },
).family(
    "falcon",
    "Falcon",
    "LayerNorm, projections fused in groups, RoPE or ALiBi (added once, before the scale)",
    older=(_SINGLE, _GROUPED),
)
