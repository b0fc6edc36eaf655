"""Gemma 2: gains are 1 + weight, logits are soft-capped, every other layer slides."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import full_every

FAMILY = Decoder(
    gain_offset=1.0,
    head_dim=256,
    key_heads=4,
    scale_key=("query_pre_attn_scalar", 256.0),
    soft_cap=("attn_logit_softcapping", 50.0),
    window=full_every(2),
    bidirectional="refused",
    scaled_embedding=True,
).family("gemma2", "Gemma2", "soft-capped logits, gains 1 + weight, sliding every other layer")
