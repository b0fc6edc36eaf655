"""Persimmon: Phi with q, k, v fused head by head, and a LayerNorm behind q and k."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import phi
from dispersion.architectures.layouts import grouped
from dispersion.config import flag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.blocks import Blocks


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """`qk_layernorm`, which is on where the config is silent."""
    normed = flag(config, "qk_layernorm", default=True)
    return replace(blocks, qk_norm=phi.QK_NORM) if normed else blocks


FAMILY = replace(
    phi.BLOCKS,
    sides=("query_key_value",),
    layout=grouped,
    key_heads=None,
    own_head_dim=False,
    vary=vary,
).family("persimmon", "Persimmon", "LayerNorm, projections fused head by head, QK LayerNorm")
