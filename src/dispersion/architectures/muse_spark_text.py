"""Muse Spark, text only: a QK norm without gains, a factor on queries; full layers rest."""

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.resting import still_where_zero
from dispersion.architectures.windows import full_where
from dispersion.rotary import RopeRule


def _full(layer: int, layers: int) -> bool:
    return (layers - 1 - layer) % 4 == 0


RULES = Decoder(
    names={
        r"self_attn\.gate_proj\.weight": ledger.GATE,
        r"post_(attention|feedforward)_residual_gate\..+": ledger.AFTER,
    },
    gain_offset=1.0,
    qk_norm="headwise",
    qk_gain=False,
    factor_keys=(("qk_scale_factor", 5.4730064863875, 1),),
    eps=1e-5,
    head_dim=64,
    key_heads=16,
    rope=RopeRule(theta=500000.0, theta_within=10000.0),
    # Its code takes no base from beside rope_parameters, and another one where only these are.
    refused=("rope_theta", "rope_scaling"),
    window=still_where_zero(full_where(_full, absent=2048), "layer_rope_theta", _full),
    embedded=False,
)

FAMILY = RULES.family(
    "muse_spark_text", "MuseSpark", "headwise QK norm without gains, a factor on queries"
)
