"""How a family's config says which part of each head turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.checkpoint.text import shown
from dispersion.config import integer
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.frequencies import power_frequencies
from dispersion.head import ONE
from dispersion.rotary import PLAIN, rotary, rotary_from_config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dispersion.rotary import RopeRule, Rotary

    Config = Mapping[str, Any]
    # From a config, a layer's type and the size of a head.
    Rotation = Callable[[Config, str, int], "Rotary | None"]


def rope(rule: RopeRule = PLAIN, *, partial: float | None = None) -> Rotation:
    """RoPE as `rope_parameters` or older keys say.

    `partial` is the share of a head that turns where the config is silent; with None all of it
    turns and a config that says otherwise is refused.
    """

    def rotation(config: Config, layer_type: str, head_dim: int) -> Rotary | None:
        stated = config
        if partial is not None and config.get("partial_rotary_factor") is None:
            stated = {**config, "partial_rotary_factor": partial}
        turned = rotary_from_config(stated, layer_type, head_dim, rule)
        still = turned is not None and bool(turned.unrotated.size)
        if turned is None or not still:
            return turned
        if partial is None:
            share = f"{2 * len(turned.pairs)} of {head_dim} coordinates turn"
            msg = (
                "partial_rotary_factor in config.json must be 1 for this model, whose own code "
                f"ignores it. Got a config in which {share}."
            )
            raise UnsupportedError(msg)
        if turned.attention_factor != ONE:
            msg = (
                f"rope_type {turned.kind} with a factor on cos and sin is not supported where only "
                f"{2 * len(turned.pairs)} of head_dim={head_dim} coordinates turn."
            )
            raise UnsupportedError(msg)
        return turned

    return rotation


def neighbours(config: Config, layer_type: str, head_dim: int) -> Rotary:  # noqa: ARG001
    """GPT-J's: the first `rotary_dim` coordinates turn in neighbouring pairs, base 10000."""
    if "rotary_dim" in config and config["rotary_dim"] is None:
        msg = "rotary_dim in config.json must be a number. Got null: not supported."
        raise UnsupportedError(msg)
    turned = integer(config, "rotary_dim", 64)
    if turned % 2 or turned > head_dim:
        msg = (
            f"rotary_dim in config.json must be even and at most head_dim={head_dim}. "
            f"Got {shown(repr(turned))}."
        )
        raise CheckpointError(msg)
    return rotary(power_frequencies(10000.0, turned), head_dim, interleaved=True, rotated=turned)
