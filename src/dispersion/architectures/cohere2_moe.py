"""Cohere 2 with experts (Command A Plus): dense layers in front, which may all rotate.

The norm in front of attention is a LayerNorm, or an RMSNorm where `rms_norm_eps` is set. A
`rope_scaling` beside `rope_theta` is not applied by transformers, so it is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.decoder_reader import Reader
from dispersion.architectures.windows import FULL, SLIDING, LayerKind, kinds_of, sliding_window
from dispersion.checkpoint.text import shown
from dispersion.config import integer
from dispersion.errors import CheckpointError
from dispersion.rotary import RopeRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint


def _kinds(config: Mapping[str, Any], layers: int) -> tuple[LayerKind, ...]:
    """Sliding layers rotate, and dense ones too where the first layers are all to be full."""
    first = min(integer(config, "first_k_dense_replace", 0, minimum=0), layers)
    step = integer(config, "sliding_window_pattern", 4)
    front = integer(config, "prefix_dense_sliding_window_pattern", 1)
    types = [SLIDING if (i + 1) % front else FULL for i in range(first)]
    types += [SLIDING if (i + 1) % step else FULL for i in range(layers - first)]
    kinds = kinds_of(config, types, sliding_window(config))
    dense = _dense(config, layers, first)
    return tuple(
        replace(kind, rotates=kind.layer_type == SLIDING or (is_dense and front == 1))
        for kind, is_dense in zip(kinds, dense, strict=True)
    )


def _dense(config: Mapping[str, Any], layers: int, first: int) -> list[bool]:
    """Which layers have no experts."""
    key = "mlp_layer_types"
    stated = config.get(key)
    if stated is None:
        return [layer < first for layer in range(layers)]
    if (
        not isinstance(stated, list)
        or len(stated) != layers
        or not all(kind in ("dense", "sparse") for kind in stated)
    ):
        msg = (
            f"{key} in config.json must list dense or sparse for {layers} layers. "
            f"Got {shown(repr(stated))}."
        )
        raise CheckpointError(msg)
    return [kind == "dense" for kind in stated]


LAYER_NORM = Decoder(
    norm="layer",
    eps=1e-5,
    eps_key="layer_norm_eps",
    head_dim=128,
    window=_kinds,
    rope=RopeRule(interleaved=True),
    refused=("rope_scaling",),
)
RMS_NORM = replace(LAYER_NORM, norm="rms", eps_key="rms_norm_eps")


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read either kind of norm."""
    rules = LAYER_NORM if checkpoint.config.get("rms_norm_eps") is None else RMS_NORM
    return Reader(rules, checkpoint).plan("cohere2_moe", layers)


FAMILY = replace(
    LAYER_NORM.family(
        "cohere2_moe",
        "Cohere2Moe",
        "LayerNorm or RMSNorm, interleaved RoPE on sliding layers and on dense ones",
    ),
    read=read,
)
