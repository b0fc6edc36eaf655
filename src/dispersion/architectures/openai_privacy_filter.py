"""OpenAI's privacy filter: gpt-oss's attention to both sides, with interleaved RoPE."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.gpt_oss import YARN
from dispersion.architectures.windows import where_absent
from dispersion.rotary import RopeRule

FAMILY = Decoder(
    rope=RopeRule(theta=150000.0, interleaved=True),
    bias_absent=True,
    eps=1e-5,
    head_dim=64,
    key_heads=2,
    window=where_absent(128),
    sinks=True,
    rope_absent=YARN,
    bidirectional="always",
).family(
    "openai_privacy_filter",
    "OpenAIPrivacyFilter",
    "a learned sink logit per head, biases, a window to both sides",
)
