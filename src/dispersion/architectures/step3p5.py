"""Step 3.5 Flash: gains 1 + weight, headwise QK norm, more query heads on sliding layers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.blocks_reader import known
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.decoder_reader import Reader
from dispersion.architectures.windows import FULL, SLIDING, full_where
from dispersion.checkpoint.text import shown
from dispersion.config import integer
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.plans import Plan
    from dispersion.architectures.sizes import Sizes
    from dispersion.architectures.windows import LayerKind
    from dispersion.checkpoint import Checkpoint

    Config = Mapping[str, Any]

OTHER = "attention_other_setting"
PARTIAL = "partial_rotary_factor"


def _sizes(config: Config, sizes: Sizes, layer: int, kind: LayerKind) -> Sizes:
    """Query heads of a layer."""
    by_layer = config.get("per_layer_config")
    heads = sizes.heads
    if by_layer is not None:
        own = by_layer.get(str(layer), {}) if isinstance(by_layer, dict) else None
        if not isinstance(own, dict) or not set(own) <= {"num_attention_heads"}:
            msg = (
                "per_layer_config in config.json must map layers to num_attention_heads. "
                f"Got {shown(repr(by_layer))}."
            )
            raise UnsupportedError(msg)
        heads = integer(own, "num_attention_heads", heads)
    elif kind.layer_type == SLIDING:
        heads = integer(config, "num_sliding_attention_heads", _other_heads(config, sizes))
    if heads % sizes.key_heads:
        msg = (
            "num_key_value_heads in config.json must divide the query heads of every layer. "
            f"Got {sizes.key_heads} and {heads} in layer {layer}."
        )
        raise CheckpointError(msg)
    return replace(sizes, heads=heads)


def _other_heads(config: Config, sizes: Sizes) -> int:
    """What the setting of sliding layers in older configs says."""
    other = config.get(OTHER)
    if other is None:
        return sizes.heads
    if not isinstance(other, dict):
        msg = f"{OTHER} in config.json must be a mapping. Got {shown(repr(other))}."
        raise CheckpointError(msg)
    for key, value in (("num_attention_groups", sizes.key_heads), ("head_dim", sizes.head_dim)):
        if other.get(key, value) != value:
            msg = (
                f"{key} of {OTHER} in config.json must be {value}, as of other layers. "
                f"Got {shown(repr(other[key]))}: not supported."
            )
            raise UnsupportedError(msg)
    return integer(other, "num_attention_heads", sizes.heads)


RULES = Decoder(
    names={
        r"self_attn\.g_proj\.weight": ledger.GATE,
        r"(moe|share_expert)\..+": ledger.FEED_FORWARD,
    },
    gain_offset=1.0,
    qk_norm="headwise",
    eps=1e-5,
    head_dim=128,
    key_heads=8,
    scale_key=("query_pre_attn_scalar", 128.0),
    partial=1.0,
    window=full_where(lambda *_: True),
    rope_nested=True,
    sizes=_sizes,
    refused=("sink", "use_rope_layers"),
    bidirectional="refused",
)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read configs of either dialect."""
    config = dict(checkpoint.config)
    if config.get(PARTIAL) not in (None, 1):
        # It would hold for the layer types that state no share of their own.
        msg = (
            f"{PARTIAL} in config.json must stand under the layer types of rope_parameters. "
            f"Got {shown(repr(config[PARTIAL]))} beside them: not supported."
        )
        raise UnsupportedError(msg)
    count = integer(config, "num_hidden_layers", maximum=ledger.MOST_LAYERS)
    further = integer(config, "num_nextn_predict_layers", 0, minimum=0)
    for key in ("layer_types", "rope_theta", "partial_rotary_factors"):
        # Draft layers follow in the lists of older configs.
        if isinstance(config.get(key), list) and len(config[key]) == count + further:
            config[key] = config[key][:count]
    config["num_key_value_heads"] = config.get(
        known(config, ("num_key_value_heads", "num_attention_groups")), 8
    )
    if config.get("query_pre_attn_scalar") is None:
        config["query_pre_attn_scalar"] = integer(config, "head_dim", 128)
    if not config.get("use_rope_layers"):
        config.pop("use_rope_layers", None)
    config.setdefault("sliding_window", None)
    if config.get("layer_types") is None:
        config["layer_types"] = [FULL] * count
    config["rope_parameters"] = _rope(config, count)
    return Reader(RULES, replace(checkpoint, config=config)).plan("step3p5", layers)


def _rope(config: Config, layers: int) -> dict[str, Any]:
    """Rotations by layer type, from lists by layer where the config has those."""
    types = config["layer_types"]
    if not isinstance(types, list) or len(types) != layers:
        msg = (
            f"layer_types in config.json must list {layers} layers, as num_hidden_layers says. "
            f"Got {shown(repr(types))}."
        )
        raise CheckpointError(msg)
    if (stated := config.get("rope_parameters")) is not None:
        return stated if isinstance(stated, dict) else {}
    found: dict[str, Any] = {}
    for layer, kind in enumerate(types):
        own: dict[str, Any] = {"rope_type": "default"}
        for key, name, default in (
            ("rope_theta", "rope_theta", 10000.0),
            ("partial_rotary_factors", "partial_rotary_factor", 1.0),
        ):
            value = config.get(key) or default
            if isinstance(value, list) and len(value) != layers:
                msg = f"{key} in config.json must list {layers} layers. Got {shown(repr(value))}."
                raise CheckpointError(msg)
            own[name] = value[layer] if isinstance(value, list) else value
        if found.setdefault(str(kind), own) != own:
            msg = (
                "rope_theta and partial_rotary_factors in config.json must agree for all layers of "
                f"one type. Got others in layer {layer}: not supported."
            )
            raise UnsupportedError(msg)
    scaling = config.get("rope_scaling")
    if isinstance(scaling, dict) and FULL in found:
        found[FULL] |= scaling
    return found


FAMILY = replace(
    RULES.family(
        "step3p5",
        "Step3p5",
        "headwise QK norm, gains 1 + weight; query heads and RoPE differ by layer type",
    ),
    read=read,
)
