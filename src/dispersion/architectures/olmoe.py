"""OLMoE: RMSNorm before attention, then q and k are normalised over all heads."""

from dispersion.architectures.decoder import Decoder

FAMILY = Decoder(qk_norm="layerwise", eps=1e-5, clip_key="clip_qkv").family(
    "olmoe", "Olmoe", "layerwise QK norm before RoPE, clip_qkv"
)
