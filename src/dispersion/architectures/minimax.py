"""MiniMax 01: Llama's attention on some layers, linear (lightning) attention on the others."""

from dispersion.architectures.decoder import Decoder
from dispersion.architectures.hybrids import LINEAR, Mixed
from dispersion.architectures.windows import FULL, slide_where_stated
from dispersion.rotary import RopeRule

FAMILY = Decoder(
    bias=False,
    eps=1e-5,
    key_heads=8,
    rope=RopeRule(theta=1000000.0),
    window=slide_where_stated(Mixed(lambda _, n: [(FULL, LINEAR)[i % 2] for i in range(n)]).rule()),
).family("minimax", "MiniMax", "Llama's attention; linear layers are skipped")
