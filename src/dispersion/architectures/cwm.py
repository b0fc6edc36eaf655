"""CWM: Llama's attention with Llama 3's stretched rotation; every fourth layer sees all keys."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import full_where
from dispersion.rotary import RopeRule

ROPE = {
    "rope_type": "llama3",
    "rope_theta": 1000000.0,
    "factor": 16.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
FAMILY = Decoder(
    bias=False,
    eps=1e-5,
    head_dim=128,
    key_heads=8,
    rope=RopeRule(theta=1000000.0),
    rope_absent=ROPE,
    window=full_where(lambda i, _: i % 4 == 0, absent=8192),
).family("cwm", "Cwm", "Llama's attention, sliding but for every fourth layer")
