"""LFM 3: LFM 2 with sliding layers, a RoPE of their own and an output gate."""

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.hybrids import CONVOLUTION, Mixed
from dispersion.architectures.windows import FULL, SLIDING
from dispersion.rotary import RopeRule

ROPE = {
    FULL: {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.5},
    SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
}


def _silent(_: object, layers: int) -> list[str]:
    kinds = (SLIDING, CONVOLUTION, FULL, CONVOLUTION)
    return [kinds[i % 4] if i else CONVOLUTION for i in range(layers)]


FAMILY = Decoder(
    input_norm="operator_norm",
    names={
        r"self_attn\.(g|gate)_proj\.weight": ledger.GATE,
        r"feed_forward\..+": ledger.FEED_FORWARD,
        r"(post_operator|ffn|post_ffn)_norm\.weight": ledger.AFTER,
    },
    qk_norm="headwise",
    eps=1e-5,
    eps_key="norm_eps",
    head_dim=128,
    key_heads=4,
    rope=RopeRule(theta=1000000.0),
    rope_absent=ROPE,
    rope_nested=True,
    refused=("rope_scaling",),
    window=Mixed(_silent, other=(CONVOLUTION,), window=256).rule(),
).family("lfm3", "Lfm3", "headwise QK norm, RoPE by layer type; convolution layers are skipped")
