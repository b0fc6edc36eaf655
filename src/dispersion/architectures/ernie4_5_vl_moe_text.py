"""ERNIE 4.5 VL: ERNIE 4.5's attention, turned by text's one position."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import mrope
from dispersion.architectures.decoder import Decoder
from dispersion.checkpoint.text import shown
from dispersion.errors import UnsupportedError
from dispersion.rotary import RopeRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

SECTIONS = [22, 22, 20]
RULES = Decoder(
    bias="use_bias", eps=1e-5, key_heads=4, rope=RopeRule(theta=500000.0, interleaved=True)
)
PLAIN = mrope.family(
    "ernie4_5_vl_moe_text",
    "Ernie4_5_VLMoeText",
    "as ernie4_5_moe, the language model of models with images",
    {"ernie4_5_vl_moe_text": RULES},
)


def check_rope(config: Mapping[str, Any]) -> None:
    """See to it that its shuffled frequencies come back in order: height and width share alike.

    Raises:
        UnsupportedError: another rope type, or sections that its code cannot pair.
    """
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(rope, dict):
        return  # which the reader of rotations refuses
    kind = rope.get("rope_type", rope.get("type", "default"))
    sections = rope.get("mrope_section", SECTIONS)
    if kind != "default":
        msg = f"rope_type {shown(repr(kind))} is not supported for this model. Supported: default."
        raise UnsupportedError(msg)
    if not isinstance(sections, list) or len(sections) != 3 or sections[0] != sections[1]:
        msg = (
            "mrope_section in config.json must list three sections, the first two alike, for this "
            f"model. Got {shown(repr(sections))}."
        )
        raise UnsupportedError(msg)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config whose rotation is that of text."""
    check_rope(checkpoint.config)
    return PLAIN.read(checkpoint, layers)


FAMILY = replace(PLAIN, read=read)
