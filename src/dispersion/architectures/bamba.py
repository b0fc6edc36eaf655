"""Bamba: Llama's attention on the layers that the config lists, Mamba 2 on the others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.decoder_reader import Reader
from dispersion.architectures.hybrids import LINEAR
from dispersion.architectures.windows import FULL, LayerKind
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from dispersion.architectures.plans import Plan
    from dispersion.architectures.windows import Config
    from dispersion.checkpoint import Checkpoint


def _kinds(config: Config, layers: int) -> tuple[LayerKind, ...]:
    """`attn_layer_indices` alone says which layers attend."""
    stated = config.get("attn_layer_indices") or []
    whole = isinstance(stated, list) and all(type(i) is int and 0 <= i < layers for i in stated)
    if not whole:
        msg = (
            f"attn_layer_indices in config.json must list layers in 0..{layers - 1}. "
            f"Got {shown(repr(stated))}."
        )
        raise CheckpointError(msg)
    attends, mamba = LayerKind(FULL), LayerKind(LINEAR, attends=False)
    return tuple(attends if i in stated else mamba for i in range(layers))


RULES = Decoder(
    names={r"feed_forward\..+": ledger.FEED_FORWARD, r"pre_ff_layernorm\.weight": ledger.AFTER},
    eps=1e-5,
    key_heads=8,
    partial=0.5,
    window=_kinds,
)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config; the class overrides a `partial_rotary_factor` outside `rope_parameters`."""
    config = {k: v for k, v in checkpoint.config.items() if k != "partial_rotary_factor"}
    return Reader(RULES, replace(checkpoint, config=config)).plan("bamba", layers)


FAMILY = replace(
    RULES.family("bamba", "Bamba", "Llama's attention, partial RoPE; Mamba layers are skipped"),
    read=read,
)
