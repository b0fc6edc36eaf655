"""Granite with experts: Granite's attention."""

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder

FAMILY = Decoder(
    multiplier_key="attention_multiplier",
    embedding_key="embedding_multiplier",
    names={r"shared_mlp\..+": ledger.FEED_FORWARD},
).family(
    "granitemoe",
    "GraniteMoe",
    "Llama's attention with attention_multiplier as the logit scale",
    "granitemoeshared",
)
