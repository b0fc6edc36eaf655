"""OLMo 2: nothing normalises the input of attention; q and k are normalised over all heads."""

from dispersion.architectures.decoder import Decoder

FAMILY = Decoder(pre_norm=False, qk_norm="layerwise", eps=1e-5).family(
    "olmo2", "Olmo2", "no norm before attention, layerwise QK norm before RoPE"
)
