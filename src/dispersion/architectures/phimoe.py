"""Phi 3.5 MoE: Llama's attention behind a LayerNorm with bias."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.decoder_reader import Reader
from dispersion.architectures.windows import where_stated
from dispersion.checkpoint.text import shown
from dispersion.errors import UnsupportedError
from dispersion.rotary import RopeRule

if TYPE_CHECKING:
    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

RULES = Decoder(
    norm="layer",
    norm_parts=("weight", "bias"),
    eps=1e-5,
    key_heads=8,
    rope=RopeRule(theta=1000000.0),
    window=where_stated,
)
# llama.cpp computes an RMSNorm with a bias, and its files have one factor on cos and sin.
RUN_BY_LLAMA_CPP = replace(RULES, norm="rms")
_SHARED = RULES.family(
    "phimoe", "Phimoe", "LayerNorm with bias, plain RoPE; scaled RoPE is refused"
)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config with plain RoPE, or a GGUF file.

    Beyond the trained length, code for this family disagrees on which of its longrope factors hold.
    """
    if checkpoint.format == "gguf":
        return Reader(RUN_BY_LLAMA_CPP, checkpoint).plan("phimoe", layers)
    for key in ("rope_parameters", "rope_scaling"):
        rope = checkpoint.config.get(key)
        kind = rope.get("rope_type") or rope.get("type") if isinstance(rope, dict) else None
        if kind not in (None, "default"):
            msg = f"{key} of type {shown(repr(kind))} is not supported for phimoe, only default."
            raise UnsupportedError(msg)
    return _SHARED.read(checkpoint, layers)


FAMILY = replace(_SHARED, read=read)
