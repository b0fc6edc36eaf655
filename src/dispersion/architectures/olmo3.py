"""OLMo 3: OLMo 2 with three sliding layers to each full one; only full layers scale RoPE."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.decoder_reader import Reader
from dispersion.architectures.windows import full_every
from dispersion.checkpoint.text import shown
from dispersion.errors import UnsupportedError
from dispersion.rotary import RopeRule

if TYPE_CHECKING:
    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

THETA = 500000.0
RULES = Decoder(
    pre_norm=False,
    qk_norm="layerwise",
    eps=1e-5,
    window=full_every(4),
    rope=RopeRule(theta=THETA, local_key="rope_theta", local_theta=THETA),
)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config whose base beside `rope_parameters` is the usual one, where it matters."""
    base, stated = (checkpoint.config.get(key) for key in ("rope_theta", "rope_parameters"))
    entries = stated.values() if isinstance(stated, dict) and stated else ({},)
    silent = any(isinstance(e, dict) and e.get("rope_theta") is None for e in entries)
    if silent and base not in (None, THETA):
        msg = (
            f"rope_theta in config.json must be {THETA:g} for olmo3, or stand under each layer "
            "type of rope_parameters: which layers take it depends on the version of the model's "
            f"code. Got {shown(repr(base))}."
        )
        raise UnsupportedError(msg)
    return Reader(RULES, checkpoint).plan("olmo3", layers)


FAMILY = replace(
    RULES.family(
        "olmo3", "Olmo3", "as olmo2, with sliding windows and scaled RoPE on full layers only"
    ),
    read=read,
)
