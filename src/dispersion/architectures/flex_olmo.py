"""FlexOlmo: OLMo 2's attention before experts."""

from dispersion.architectures.decoder import Decoder
from dispersion.rotary import RopeRule

FAMILY = Decoder(pre_norm=False, qk_norm="layerwise", rope=RopeRule(theta=500000.0)).family(
    "flex_olmo", "FlexOlmo", "as olmo2: no norm before attention, layerwise QK norm"
)
