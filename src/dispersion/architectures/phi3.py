"""Phi 3 and 4: one projection for queries, keys and values; longrope scaling, partial rotation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import where_stated
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

ORIGINAL = "original_max_position_embeddings"
_SHARED = Decoder(bias=False, fused=True, eps=1e-5, partial=1.0, window=where_stated).family(
    "phi3", "Phi3", "fused projections, RoPE with longrope, sliding where a window is set"
)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config whose rope type is not yarn, which this family's code takes for longrope.

    The length before stretching is what stands beside the rope parameters, or the class's.
    """
    for key in ("rope_parameters", "rope_scaling"):
        rope = checkpoint.config.get(key)
        if isinstance(rope, dict) and "yarn" in (rope.get("rope_type"), rope.get("type")):
            msg = f"{key} of type yarn is not supported for phi3. Write longrope if it is meant."
            raise UnsupportedError(msg)
    config = dict(checkpoint.config)
    if config.get(ORIGINAL) is None:
        config[ORIGINAL] = 4096
    return _SHARED.read(replace(checkpoint, config=config), layers)


FAMILY = replace(_SHARED, read=read)
