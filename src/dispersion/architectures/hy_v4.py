"""Hy 4: latent attention on the keys that an indexer picks, with learned sinks, half-split RoPE."""

from __future__ import annotations

from functools import partial

from dispersion.architectures import ledger
from dispersion.architectures.indexed_attention import NAMES, indexed
from dispersion.architectures.latent_reader import Latent

FAMILY = Latent(
    interleaved=False,
    names={
        **NAMES,
        r"self_attn\.(linear_gate|gate_proj)\.weight": ledger.GATE,
        r"(hc_pre\.)?hc_(attn|mlp)_layer\..+|(attn|ffn)_hc\..+": "mixes streams before the norm",
    },
    finish=partial(indexed, sinks="learnable_sink_param"),
).family(
    "hy_v4",
    ("hy_v4",),
    "HYV4",
    "latent attention on index_topk keys that an indexer picks, learned sinks, half-split RoPE",
)
