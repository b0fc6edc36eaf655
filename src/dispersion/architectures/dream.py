"""Dream, a language model by diffusion: Qwen 2's attention, to both sides.

Read off the code published with the models, which transformers does not have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.granted import check_granted

if TYPE_CHECKING:
    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

_FAMILY = Decoder(bias=True, bidirectional="always").family(
    "dream", "Dream", "Qwen 2's attention, to both sides", "Dream"
)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config, unless windows slide: its code has them in one kernel and not in another."""
    check_granted(checkpoint.config, {"use_sliding_window": False, "use_mrope": False}, "dream")
    return _FAMILY.read(checkpoint, layers)


FAMILY = replace(_FAMILY, read=read)
