"""Muse Glimmer, text only: Muse Spark's attention with other sizes and factor."""

from dataclasses import replace

from dispersion.architectures.muse_spark_text import RULES
from dispersion.rotary import PLAIN

FAMILY = replace(
    RULES,
    factor_keys=(("qk_scale_factor", 3.87, 1),),
    head_dim=128,
    key_heads=2,
    rope=PLAIN,
    refused=(),  # its class keeps the base and the scaling that stand beside rope_parameters
).family("muse_glimmer_text", "MuseGlimmer", "as muse_spark_text")
