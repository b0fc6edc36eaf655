"""Granite with experts, sliding windows and sinks: granite_swa's attention, other defaults."""

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.resting import theta_by_layer
from dispersion.architectures.windows import full_where

FAMILY = Decoder(
    multiplier_key="attention_multiplier",
    embedding_key="embedding_multiplier",
    names={r"shared_mlp\..+": ledger.FEED_FORWARD},
    sinks=True,
    window=theta_by_layer(full_where(lambda i, _: i % 4 == 0, absent=128), "layer_rope_theta"),
).family("granitemoe_swa", "GraniteMoeSWA", "as granite_swa, before experts")
