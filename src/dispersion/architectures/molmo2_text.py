"""Molmo 2: Qwen 3's attention behind one projection for queries, keys and values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.attention import Norm
from dispersion.architectures.blocks import Blocks
from dispersion.architectures.blocks_reader import BlocksReader, known
from dispersion.architectures.layouts import stacked
from dispersion.architectures.rotations import rope
from dispersion.checkpoint.text import shown
from dispersion.config import integer
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

# Keys that older configs call otherwise.
ALIASES = {"attention_bias": "qkv_bias", "rms_norm_eps": "layer_norm_eps"}
COVERED = {"qk_norm_type": "qwen3", "norm_after": False}
SCALED = "rope_scaling_layers"
RULES = Blocks(
    stack="blocks",
    module="self_attn",
    norm="attn_norm",
    norm_kind="rms",
    norm_parts=("weight",),
    sides=("att_proj",),
    layout=stacked,
    key_heads="num_key_value_heads",
    key_heads_absent=8,
    own_head_dim=True,
    bias="attention_bias",
    bias_absent=False,
    qk_norm=Norm("rms", "{side}_norm.weight"),
    eps=1e-6,
    eps_key="rms_norm_eps",
    rotation=rope(),
    inside={
        r"self_attn\.attn_out\.weight": ledger.VALUE,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"ff_norm\.weight": ledger.AFTER,
    },
    outside={
        r"wte\.(new_)?embedding": ledger.EMBEDDING,
        r"ln_f\.weight": ledger.FINAL_NORM,
    },
)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config of either dialect."""
    config: dict[str, Any] = dict(checkpoint.config)
    for key, older in ALIASES.items():
        config[key] = config.get(known(config, (key, older)))
    if "head_dim" not in config:
        config["head_dim"] = 128
    for key, only in COVERED.items():
        if (got := config.get(key, only)) != only:
            msg = f"{key}={shown(repr(got))} in config.json is not supported for this model."
            raise UnsupportedError(msg)
    _check_scaled(config)
    found = replace(checkpoint, config=config)
    return BlocksReader(RULES, found).plan("molmo2_text", layers)


def _check_scaled(config: Mapping[str, Any]) -> None:
    """See to it that all layers turn alike: that none is left out where a scaling is stated."""
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    scaled = isinstance(rope, dict) and rope.get("rope_type", rope.get("type", "default"))
    listed = config.get(SCALED)
    every = list(range(integer(config, "num_hidden_layers", maximum=ledger.MOST_LAYERS)))
    if scaled != "default" and listed not in (None, every):
        msg = (
            f"{SCALED} in config.json must list every layer where RoPE is scaled. "
            f"Got {shown(repr(listed))}: not supported."
        )
        raise UnsupportedError(msg)


FAMILY = replace(
    RULES.family("molmo2_text", "Molmo2Text", "headwise QK norm behind one fused projection"),
    read=read,
)
