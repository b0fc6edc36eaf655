"""Jamba: Llama's attention without rotation on some layers, Mamba on the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.hybrids import LINEAR
from dispersion.architectures.windows import FULL, LayerKind
from dispersion.config import integer
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from dispersion.architectures.windows import Config


def _kinds(config: Config, layers: int) -> tuple[LayerKind, ...]:
    """Layers whose index is `attn_layer_offset` more than a multiple of the period attend."""
    period = integer(config, "attn_layer_period", 8)
    offset = integer(config, "attn_layer_offset", 4, minimum=0)
    if offset >= period:
        msg = (
            "attn_layer_offset in config.json must be below attn_layer_period. "
            f"Got {offset} and {period}."
        )
        raise CheckpointError(msg)
    attends, mamba = LayerKind(FULL, rotates=False), LayerKind(LINEAR, attends=False)
    return tuple(attends if i % period == offset else mamba for i in range(layers))


FAMILY = Decoder(
    bias=False,
    names={r"feed_forward\..+": ledger.FEED_FORWARD, r"pre_ff_layernorm\.weight": ledger.AFTER},
    key_heads=8,
    window=_kinds,
).family("jamba", "Jamba", "Llama's attention without rotation; Mamba layers are skipped")
