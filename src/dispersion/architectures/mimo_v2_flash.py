"""MiMo V2 Flash: sliding layers have learned sinks and twice the key heads of full ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.decoder_reader import Reader
from dispersion.architectures.windows import FULL, SLIDING, full_where
from dispersion.checkpoint.text import shown
from dispersion.config import integer
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.plans import Plan
    from dispersion.architectures.sizes import Sizes
    from dispersion.architectures.windows import LayerKind
    from dispersion.checkpoint import Checkpoint

# What its config class takes where a config has no `rope_parameters`, whatever else it states.
THETA, LOCAL_THETA, PARTIAL = 5000000.0, 10000.0, 0.334
ROPE = {
    FULL: {"rope_theta": THETA, "partial_rotary_factor": PARTIAL},
    SLIDING: {"rope_theta": LOCAL_THETA, "partial_rotary_factor": PARTIAL},
}
FLAT = {
    "rope_theta": THETA,
    "swa_rope_theta": LOCAL_THETA,
    "partial_rotary_factor": PARTIAL,
    "rope_scaling": None,
}


def _doubled(_: Mapping[str, Any], sizes: Sizes, layer: int, kind: LayerKind) -> Sizes:  # noqa: ARG001
    slides = kind.layer_type == SLIDING
    return replace(sizes, key_heads=2 * sizes.key_heads) if slides else sizes


RULES = Decoder(
    eps=1e-5,
    head_dim=192,
    key_heads=4,
    partial=PARTIAL,
    window=full_where(lambda i, _: i == 0 or (i + 1) % 6 == 0, absent=129),
    rope_nested=True,
    rope_absent=ROPE,
    sizes=_doubled,
    sinks=True,
    sink_name="attention_sink_bias",
    sinks_slide=True,
)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config whose flat keys, which its code ignores, say the same as its code."""
    config = checkpoint.config
    for key, default in FLAT.items():
        if config.get("rope_parameters") is None and config.get(key, default) not in (
            None,
            default,
        ):
            msg = (
                f"{key} in config.json must be {default} for this model, whose own code takes that "
                f"without rope_parameters. Got {shown(repr(config[key]))}."
            )
            raise UnsupportedError(msg)
    if config.get("sliding_window_size") is not None:
        window = integer(config, "sliding_window_size") + 1
        checkpoint = replace(checkpoint, config={**config, "sliding_window": window})
    rope = config.get("rope_parameters")
    if isinstance(rope, dict) and config.get("partial_rotary_factor") is None:
        whole = {layer_type: _whole(entry) for layer_type, entry in rope.items()}
        checkpoint = replace(checkpoint, config={**checkpoint.config, "rope_parameters": whole})
    return Reader(RULES, checkpoint).plan("mimo_v2_flash", layers)


def _whole(entry: object) -> object:
    """A layer type's rotation; scaled ones turn the whole head where they state no share."""
    if not isinstance(entry, dict) or entry.get("partial_rotary_factor") is not None:
        return entry
    scaled = entry.get("rope_type", entry.get("type", "default")) != "default"
    return {**entry, "partial_rotary_factor": 1.0} if scaled else entry


FAMILY = replace(
    RULES.family(
        "mimo_v2_flash",
        "MiMoV2Flash",
        "partial RoPE; sliding layers have sinks and twice the key heads",
    ),
    read=read,
)
