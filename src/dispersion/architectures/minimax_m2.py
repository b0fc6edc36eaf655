"""MiniMax M2: q and k are normalised over all heads; `rotary_dim` coordinates of a head turn."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.decoder_reader import Reader
from dispersion.config import integer
from dispersion.rotary import RopeRule

if TYPE_CHECKING:
    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

RULES = Decoder(
    bias=False,
    qk_norm="layerwise",
    head_dim=128,
    key_heads=8,
    partial=1.0,
    rope=RopeRule(theta=5000000.0),
)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config that may state `rotary_dim` instead of `partial_rotary_factor`."""
    config = checkpoint.config
    rules = RULES
    if config.get("rotary_dim") is not None:
        head_dim = integer(config, "head_dim", 128)
        rules = replace(RULES, partial=integer(config, "rotary_dim") / head_dim)
    return Reader(rules, checkpoint).plan("minimax_m2", layers)


FAMILY = replace(
    RULES.family("minimax_m2", "MiniMaxM2", "layerwise QK norm before partial RoPE"), read=read
)
