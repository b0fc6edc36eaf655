"""Rotations that a config states layer type by layer type, or layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.windows import LayerKind

    Config = Mapping[str, Any]

FLAT = ("rope_theta", "rope_scaling", "rope_local_base_freq", "partial_rotary_factor")


def without_flat(config: Config) -> dict[str, Any]:
    """A config without the keys beside `rope_parameters`, for code that never looks at them."""
    return {key: value for key, value in config.items() if key not in FLAT}


def check_nested(config: Config, kind: LayerKind) -> None:
    """See to it that a layer type states its base: what else could mean it is ignored.

    Raises:
        CheckpointError: it does not.
    """
    rope = config.get("rope_parameters")
    entry = rope.get(kind.layer_type) if isinstance(rope, dict) else None
    if not isinstance(entry, dict) or entry.get("rope_theta") is None:
        msg = (
            f"rope_parameters in config.json must state rope_theta under {kind.layer_type} for "
            f"this model. Got {shown(repr(rope))}."
        )
        raise CheckpointError(msg)


def with_own_base(config: Config, kind: LayerKind) -> Config:
    """The config as a layer with a base of its own sees it."""
    if kind.theta is None:
        return config
    found = {**config, "rope_theta": kind.theta}
    for key in ("rope_parameters", "rope_scaling"):
        stated = config.get(key)
        if isinstance(stated, dict) and stated:
            found[key] = {**stated, "rope_theta": kind.theta}
    return found
