"""DBRX: queries, keys and values in one projection behind a LayerNorm; clip_qkv clamps them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks, Keys
from dispersion.architectures.layouts import stacked
from dispersion.architectures.rotations import rope
from dispersion.architectures.scales import clip_of
from dispersion.checkpoint.text import shown
from dispersion.config import integer, positive
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.rotary import Rotary

WHERE = "attn_config of config.json"


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """What `attn_config` says."""
    own = _own(config)
    blocks = replace(blocks, key_heads=integer(own, "kv_n_heads", 1, where=WHERE))
    limit = clip_of(own)
    # Contexts of token ids are built without clamping.
    return blocks if limit is None else replace(blocks, clip=limit, tokens=None)


def rotation(config: Mapping[str, Any], layer_type: str, head_dim: int) -> Rotary | None:
    """RoPE with the base of `attn_config` or of the config itself; the two must agree."""
    stated = config.get("rope_parameters")
    outer = stated.get("rope_theta") if isinstance(stated, dict) else None
    outer = config.get("rope_theta") if outer is None else outer
    own = _own(config)
    if own.get("rope_theta") is None:
        return rope()(config, layer_type, head_dim)
    theta = positive(own, "rope_theta", where=WHERE)
    if outer is not None and outer != theta:
        msg = (
            f"rope_theta in {WHERE} must be that of config.json, {shown(repr(outer))}. "
            f"Got {theta:g}; which of them the model was trained with is not known."
        )
        raise UnsupportedError(msg)
    return rope()({**config, "rope_theta": theta}, layer_type, head_dim)


def _own(config: Mapping[str, Any]) -> Mapping[str, Any]:
    own = config.get("attn_config") or {}
    if not isinstance(own, dict):
        msg = f"attn_config in config.json must be an object. Got {shown(repr(own))}."
        raise CheckpointError(msg)
    return own


FAMILY = Blocks(
    stack="blocks",
    module="norm_attn_norm.attn",
    norm="norm_attn_norm.norm_1",
    keys=Keys(
        ("n_layers", "num_hidden_layers"),
        ("d_model", "hidden_size"),
        ("n_heads", "num_attention_heads"),
        ("max_seq_len", "max_position_embeddings"),
    ),
    sides=("Wqkv",),
    layout=stacked,
    bias=False,
    norm_parts=("weight",),
    eps_key=None,
    rotation=rotation,
    positions_absent=2048,
    tokens="wte.weight",
    vary=vary,
    inside={
        r"norm_attn_norm\.attn\.out_proj\.weight": ledger.VALUE,
        r"norm_attn_norm\.attn\.rotary_emb\.inv_freq": ledger.FREQUENCIES,
        r"norm_attn_norm\.norm_2\.weight": ledger.AFTER,
        r"ffn\..+": ledger.FEED_FORWARD,
    },
    outside={
        r"wte\.weight": ledger.EMBEDDING,
        r"norm_f\.weight": ledger.FINAL_NORM,
        r"lm_head\.weight": ledger.HEAD,
    },
).family("dbrx", "Dbrx", "LayerNorm with a gain alone, fused projections, clip_qkv")
