"""XVERSE 7B to 65B: Llama's attention without biases.

Read off programs that run it, which transformers does not have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.granted import check_granted

if TYPE_CHECKING:
    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

_FAMILY = Decoder(bias=False).family("xverse", "Xverse", "Llama's attention")


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config, unless it scales the rotation."""
    check_granted(checkpoint.config, {"rope_scaling": None}, "xverse")
    return _FAMILY.read(checkpoint, layers)


FAMILY = replace(_FAMILY, read=read)
