"""Orion 14B: Llama's attention behind a LayerNorm, whose ε stands under the key of an RMSNorm.

Read off programs that run it, which transformers does not have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.granted import check_scaling

if TYPE_CHECKING:
    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

_FAMILY = Decoder(bias=False, norm="layer", norm_parts=("weight", "bias"), eps=1e-5).family(
    "orion", "Orion", "as llama, LayerNorm"
)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config, unless it scales the rotation in a way that is not known."""
    check_scaling(checkpoint.config, ("linear", "dynamic"), "orion")
    return _FAMILY.read(checkpoint, layers)


FAMILY = replace(_FAMILY, read=read)
