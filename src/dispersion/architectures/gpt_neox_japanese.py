"""GPT-NeoX Japanese: GPT-NeoX's attention without biases; all of a head turns unless stated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks
from dispersion.architectures.gpt_neox import NAMING
from dispersion.architectures.layouts import grouped
from dispersion.architectures.rotations import rope
from dispersion.config import positive

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.rotary import Rotary


def _rotation(config: Mapping[str, Any], layer_type: str, head_dim: int) -> Rotary | None:
    """By the old names, the only ones that the class knows outside `rope_parameters`."""
    old = {
        "rope_theta": positive(config, "rotary_emb_base", 10000.0),
        "partial_rotary_factor": positive(config, "rotary_pct", 1.0),
    }
    return rope(partial=1.0)({**config, **old}, layer_type, head_dim)


FAMILY = Blocks(
    stack=NAMING.stack,
    module=NAMING.module,
    norm=NAMING.near[0],
    sides=("query_key_value",),
    layout=grouped,
    bias=False,
    eps_key="layer_norm_eps",
    rotation=_rotation,
    tokens="embed_in.weight",
    inside={**NAMING.inside, r"attention\.dense_bias": ledger.VALUE},
    outside=NAMING.outside,
).family("gpt_neox_japanese", "GPTNeoXJapanese", "LayerNorm, projections fused head by head, RoPE")
