"""Gemma 3n, text only: plain gains, logit scale 1; the last layers reuse keys of earlier ones."""

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.sharing import last_layers
from dispersion.architectures.windows import full_every
from dispersion.rotary import RopeRule

FAMILY = Decoder(
    names={
        r"(altup|laurel)\..+": "residual streams beside attention",
        r"per_layer_(input_gate|projection)\.weight": ledger.AFTER,
        r"post_per_layer_input_norm\.weight": ledger.AFTER,
    },
    qk_norm="headwise",
    heads=8,
    head_dim=256,
    key_heads=2,
    unscaled=True,
    window=full_every(5, absent=512),
    shared=last_layers(15),
    rope=RopeRule(theta=1e6, local_key="rope_local_base_freq", local_theta=1e4),
    bidirectional="refused",
    embedded=False,
).family(
    "gemma3n_text",
    "Gemma3n",
    "headwise QK norm, no logit scale; the last layers read keys of earlier ones",
)
