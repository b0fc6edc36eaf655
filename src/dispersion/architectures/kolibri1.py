"""Kolibri 1: a headwise QK norm; beside sliding layers, full ones do not rotate."""

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.resting import still_beside_sliding
from dispersion.architectures.windows import full_every

FAMILY = Decoder(
    bias=False,
    names={
        r"post_(self_attn|mlp)_layernorm\.weight": ledger.AFTER,
        r"post_(attn|ffn)_norm\.weight": ledger.AFTER,
        r"moe\..+": ledger.FEED_FORWARD,
    },
    qk_norm="headwise",
    head_dim=128,
    key_heads=4,
    window=still_beside_sliding(full_every(5, absent=513)),
).family("kolibri1", "Kolibri1", "headwise QK norm; RoPE on sliding layers, or on all without any")
