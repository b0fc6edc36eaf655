"""GLM 4.5 to 4.7: half-split partial RoPE, a headwise QK norm where the config says so, experts."""

from dispersion.architectures.decoder import Decoder

FAMILY = Decoder(
    qk_norm="headwise", qk_key="use_qk_norm", eps=1e-5, key_heads=8, partial=0.5
).family("glm4_moe", "Glm4Moe", "partial RoPE, with use_qk_norm a headwise QK norm")
