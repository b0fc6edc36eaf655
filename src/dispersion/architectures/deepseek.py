"""DeepSeek 1 with experts (DeepSeekMoE 16B): Llama's attention.

Read off programs that run it; transformers has its successors alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.granted import check_scaling

if TYPE_CHECKING:
    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

_FAMILY = Decoder().family("deepseek", "Deepseek", "Llama's attention")


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config, unless it scales the rotation in a way that is not known."""
    check_scaling(checkpoint.config, ("linear", "dynamic"), "deepseek")
    return _FAMILY.read(checkpoint, layers)


FAMILY = replace(_FAMILY, read=read)
