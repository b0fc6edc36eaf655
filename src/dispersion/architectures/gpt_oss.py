"""gpt-oss: a learned sink logit for each head, biases, YaRN, and every other layer slides."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.windows import full_every
from dispersion.rotary import RopeRule

# What its config class takes where a config says nothing of RoPE.
YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}

FAMILY = Decoder(
    rope=RopeRule(theta=150000.0),
    bias_absent=True,
    eps=1e-5,
    head_dim=64,
    key_heads=8,
    window=full_every(2, absent=128),
    sinks=True,
    rope_absent=YARN,
).family("gpt_oss", "GptOss", "a learned sink logit per head, biases, sliding every other layer")
