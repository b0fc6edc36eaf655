"""LFM 2: a headwise QK norm on attention layers, short convolutions on the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.hybrids import CONVOLUTION, Mixed
from dispersion.architectures.windows import FULL
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError
from dispersion.rotary import RopeRule

if TYPE_CHECKING:
    from dispersion.architectures.windows import Config


def _silent(config: Config, layers: int) -> list[str]:
    """`full_attn_idxs` lists the layers that attend; all do where it is absent."""
    stated = config.get("full_attn_idxs")
    if stated is None:
        return [FULL] * layers
    if not isinstance(stated, list):
        msg = f"full_attn_idxs in config.json must be a list. Got {shown(repr(stated))}."
        raise CheckpointError(msg)
    return [FULL if i in stated else CONVOLUTION for i in range(layers)]


NAMES = {
    r"self_attn\.out_proj\.weight": ledger.VALUE,
    r"feed_forward\..+": ledger.FEED_FORWARD,
    r"ffn_norm\.weight": ledger.AFTER,
}

FAMILY = Decoder(
    bias=False,
    input_norm="operator_norm",
    names=NAMES,
    qk_norm="headwise",
    qk_names=("q_layernorm", "k_layernorm"),
    eps=1e-5,
    eps_key="norm_eps",
    key_heads=8,
    rope=RopeRule(theta=1000000.0),
    window=Mixed(_silent, other=(CONVOLUTION,)).rule(),
).family("lfm2", "Lfm2", "headwise QK norm before RoPE; convolution layers are skipped", "lfm2_moe")
