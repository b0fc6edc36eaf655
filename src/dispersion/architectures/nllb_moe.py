"""NLLB with experts: M2M-100 under other names."""

from dispersion.architectures import ledger
from dispersion.architectures.seq2seq import Rules

FAMILY = Rules(
    before=True,
    cross="cross_attention",
    inside={
        r"ffn\..+": ledger.FEED_FORWARD,
        r"ff_layer_norm\.(weight|bias)": ledger.AFTER,
    },
).family("nllb_moe", ("NllbMoe",), "as m2m_100, with experts", types=("nllb-moe",))
