"""Arcee AFM: Llama's attention before another feed-forward part."""

from dispersion.architectures.decoder import Decoder

FAMILY = Decoder(eps=1e-5).family("arcee", "Arcee", "Llama's attention")
