"""Granite with sliding windows and a learned sink for each head.

Its code multiplies the output by sigmoid(log Σ exp(logits) − sink), which is what a further logit
in the denominator does.
"""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.resting import theta_by_layer
from dispersion.architectures.windows import full_where

FAMILY = Decoder(
    eps=1e-5,
    key_heads=4,
    multiplier_key="attention_multiplier",
    embedding_key="embedding_multiplier",
    sinks=True,
    window=theta_by_layer(full_where(lambda i, _: i % 4 == 0, absent=128), "layer_rope_theta"),
).family(
    "granite_swa",
    "GraniteSWA",
    "a learned sink logit per head, attention_multiplier, a RoPE base per layer (0 for none)",
)
