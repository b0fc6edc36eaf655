"""T5Gemma: an encoder and a decoder of Gemma 2's layers, and soft-capped attention between them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.turned_stacks import Pair
from dispersion.architectures.windows import full_every
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from dispersion.checkpoint import Checkpoint


def config(checkpoint: Checkpoint, side: str) -> dict[str, Any]:
    """One stack's own.

    Raises:
        CheckpointError: it is not a mapping.
    """
    own = checkpoint.config.get(side)
    if not isinstance(own, dict):
        msg = f"{side} in config.json must be a mapping. Got {shown(repr(own))}."
        raise CheckpointError(msg)
    return dict(own)


DECODER = Decoder(
    gain_offset=1.0,
    head_dim=256,
    key_heads=4,
    input_norm="pre_self_attn_layernorm",
    scale_key=("query_pre_attn_scalar", 256.0),
    soft_cap=("attn_logit_softcapping", 50.0),
    window=full_every(2),
    scaled_embedding=True,
)

FAMILY = Pair(
    encoder=replace(DECODER, bidirectional="always"),
    decoder=DECODER,
    config=config,
    cross="cross_attn",
    cross_norm="pre_cross_attn_layernorm",
    end="norm",
    inside={r"post_(self|cross)_attn_layernorm\.weight": ledger.AFTER},
).family("t5gemma", "T5Gemma", "as gemma2; encoder, decoder, and cross-attention without rotation")
