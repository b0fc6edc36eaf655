"""Granite: the logit scale is a number of the config, and embeddings are multiplied by another."""

from dispersion.architectures.decoder import Decoder

FAMILY = Decoder(
    multiplier_key="attention_multiplier", embedding_key="embedding_multiplier"
).family("granite", "Granite", "Llama's attention with attention_multiplier as the logit scale")
