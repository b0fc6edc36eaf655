"""Arcee Trinity (AFMoE): a headwise QK norm, an output gate; only sliding layers rotate."""

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.resting import still_where_full
from dispersion.architectures.windows import full_every

FAMILY = Decoder(
    names={
        r"self_attn\.gate_proj\.weight": ledger.GATE,
        r"(pre|post)_mlp_layernorm\.weight": ledger.AFTER,
    },
    qk_norm="headwise",
    eps=1e-5,
    head_dim=128,
    scaled_embedding="mup_enabled",
    window=still_where_full(full_every(4, "global_attn_every_n_layers", absent=1024)),
).family("afmoe", "Afmoe", "headwise QK norm; RoPE on sliding layers only")
