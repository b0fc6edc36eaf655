"""Falcon H1: attention and Mamba side by side in each layer, with factors on inputs and keys."""

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder

FAMILY = Decoder(
    names={
        r"mamba\..+": "Mamba beside attention",
        r"feed_forward\..+": ledger.FEED_FORWARD,
        r"pre_ff_layernorm\.weight": ledger.AFTER,
    },
    eps=1e-5,
    key_heads=8,
    factor_keys=(("key_multiplier", 1.0, 1),),
    input_factor_key="attention_in_multiplier",
    embedding_key="embedding_multiplier",
).family("falcon_h1", "FalconH1", "factors on inputs and keys; Mamba beside attention is skipped")
