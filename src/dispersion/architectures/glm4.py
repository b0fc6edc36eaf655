"""GLM 4 0414: GLM with two more norms behind attention and feed-forward."""

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.rotary import RopeRule

FAMILY = Decoder(
    bias_absent=True,
    eps=1.5625e-7,
    head_dim=128,
    key_heads=2,
    partial=0.5,
    rope=RopeRule(interleaved=True),
    names={r"post_(self_attn|mlp)_layernorm\.weight": ledger.AFTER},
).family("glm4", "Glm4", "as glm, with norms behind attention and feed-forward too")
