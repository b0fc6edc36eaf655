"""Mistral 4: latent attention, whose queries grow with the position as in Ministral 3."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ministral3
from dispersion.architectures.latent_reader import Latent
from dispersion.architectures.windows import FULL, LayerKind
from dispersion.checkpoint.text import shown
from dispersion.config import integer
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint
    from dispersion.growth import LogGrowth

KEY = "partial_rotary_factor"


def _growth(config: Mapping[str, Any]) -> LogGrowth:
    return ministral3.growth(config, LayerKind(FULL))


RULES = Latent(interleave_key="rope_interleave", growth=_growth)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config that gives the turned part as a share of the whole head."""
    config = dict(checkpoint.config)
    rope = config.get("rope_parameters")
    if not isinstance(rope, dict):
        got = shown(repr(rope))
        msg = f"config.json must have rope_parameters for mistral4. Got {got}; add them."
        raise CheckpointError(msg)
    still, turned = integer(config, "qk_nope_head_dim"), integer(config, "qk_rope_head_dim")
    share = rope.get(KEY, turned / (still + turned))  # what the config class sets
    if not isinstance(share, (int, float)) or int((still + turned) * share) != turned:
        msg = (
            f"{KEY} under rope_parameters in config.json must be qk_rope_head_dim / "
            f"(qk_nope_head_dim + qk_rope_head_dim) = {turned}/{still + turned}. "
            f"Got {shown(repr(share))}."
        )
        raise CheckpointError(msg)
    config["rope_parameters"] = {key: value for key, value in rope.items() if key != KEY}
    return RULES.read("mistral4", replace(checkpoint, config=config), layers)


FAMILY = replace(
    RULES.family(
        "mistral4", ("mistral4",), "Mistral4", "latent attention, growth with the position"
    ),
    read=read,
)
