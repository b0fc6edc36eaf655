"""HunYuan OCR: HunYuan V1's attention, in which no rotation is left, however images are placed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures.blocks_reader import known
from dispersion.architectures.decoder_reader import Reader
from dispersion.architectures.hunyuan_v1_dense import RULES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config of any dialect."""
    config = dict(checkpoint.config)
    config["head_dim"] = config.get(known(config, ("head_dim", "attention_head_dim")))
    for key in ("rope_scaling", "rope_parameters"):
        config[key] = _unscaled(config.get(key))
    return Reader(RULES, replace(checkpoint, config=config)).plan("hunyuan_vl_text", layers)


def _unscaled(rope: Any) -> Any:
    """Rope parameters without a factor of the base, which changes frequencies and nothing else."""
    scaled = isinstance(rope, dict) and rope.get("alpha")
    kind = _kind(rope) if scaled else None
    return {**rope, "rope_type": "default"} if kind in ("dynamic", "xdrope") else rope


def _kind(rope: Mapping[str, Any]) -> Any:
    return rope.get("rope_type", rope.get("type"))


FAMILY = replace(
    RULES.family(
        "hunyuan_vl_text",
        "HunYuanVLText",
        "as hunyuan_v1_dense, the language model of models with images",
    ),
    read=read,
)
