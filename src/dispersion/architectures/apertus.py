"""Apertus: a headwise QK norm, and names of its own for the norms of a layer."""

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.rotary import RopeRule

# What its config class takes where a config says nothing of RoPE, or states a base alone.
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 12000000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}

FAMILY = Decoder(
    input_norm="attention_layernorm",
    names={r"feedforward_layernorm\.weight": ledger.AFTER},
    qk_norm="headwise",
    eps=1e-5,
    rope=RopeRule(theta=12000000.0),
    rope_absent=LLAMA3,
).family("apertus", "Apertus", "headwise QK norm before RoPE")
