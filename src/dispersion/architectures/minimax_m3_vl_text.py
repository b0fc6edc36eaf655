"""MiniMax M3: gains 1 + weight and a headwise QK norm; most layers let an indexer pick keys.

Layers whose queries see the blocks of keys that an indexer picks are refused: what is said of a row
of n keys would not hold of one of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.decoder_reader import Reader
from dispersion.architectures.windows import FULL
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.results import Refused
from dispersion.rotary import RopeRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

SPARSE = "minimax_m3_sparse"
PICKED = "an indexer picks the blocks of keys that a query sees"
RULES = Decoder(
    bias=False,
    gain_offset=1.0,
    qk_norm="headwise",
    head_dim=128,
    key_heads=4,
    partial=1.0,
    rope=RopeRule(theta=5e6),
)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read the layers that see every key, and refuse the others by name."""
    reader = Reader(RULES, checkpoint)
    sparse = _sparse(checkpoint.config, reader.layers)
    found = reader.plan("minimax_m3_vl_text", layers)
    picking = {layer.module for layer in found.layers if layer.layer in sparse}
    known = [r for r in found.refused if _index(r.name) not in sparse]
    picking |= {r.name for r in found.refused if _index(r.name) in sparse}
    return replace(
        found,
        layers=tuple(layer for layer in found.layers if layer.layer not in sparse),
        refused=(*known, *(Refused(name, PICKED) for name in sorted(picking))),
    )


def _index(module: str) -> int | None:
    """The layer of a refused module, if it names one."""
    part = module.rpartition(".self_attn")[0].rpartition(".")[2]
    return int(part) if part.isdigit() else None


def _sparse(config: Mapping[str, Any], layers: int) -> frozenset[int]:
    """Layers in which an indexer picks keys, in the new and the old config dialect."""
    types, older = config.get("layer_types"), config.get("sparse_attention_config") or {}
    key = "layer_types"
    if types is None and isinstance(older, dict) and "sparse_attention_freq" in older:
        key = "sparse_attention_freq"
        marks = older[key]
        types = [SPARSE if m else FULL for m in marks] if isinstance(marks, list) else marks
    if types is None:
        return frozenset()
    if not isinstance(types, list) or len(types) != layers:
        msg = f"{key} in config.json must list {layers} layers. Got {shown(repr(types))}."
        raise CheckpointError(msg)
    for layer, kind in enumerate(types):
        if kind not in (FULL, SPARSE):
            msg = f"{key}[{layer}]={shown(repr(kind))} in config.json is not supported."
            raise UnsupportedError(msg)
    return frozenset(i for i, kind in enumerate(types) if kind == SPARSE)


FAMILY = replace(
    RULES.family(
        "minimax_m3_vl_text",
        "MiniMaxM3VLText",
        "headwise QK norm, gains 1 + weight; layers whose keys an indexer picks are refused",
    ),
    read=read,
)
