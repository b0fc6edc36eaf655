"""OLMo 3: OLMo 2 with three sliding layers to each full one; only full layers scale RoPE."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import full_every
from dispersion.rotary import RopeRule

FAMILY = Decoder(
    pre_norm=False,
    qk_norm="layerwise",
    eps=1e-5,
    window=full_every(4),
    rope=RopeRule(theta=500000.0, local_key="rope_theta", local_theta=500000.0),
).family("olmo3", "Olmo3", "as olmo2, with sliding windows and scaled RoPE on full layers only")
