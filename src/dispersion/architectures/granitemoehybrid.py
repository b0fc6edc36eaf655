"""Granite 4: Granite's attention on some layers, Mamba on the others; RoPE only on request."""

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.hybrids import LINEAR, Mixed
from dispersion.architectures.resting import still_unless

FAMILY = Decoder(
    multiplier_key="attention_multiplier",
    embedding_key="embedding_multiplier",
    names={r"shared_mlp\..+": ledger.FEED_FORWARD},
    window=still_unless(
        Mixed(lambda _, n: [LINEAR] * n, keys=("layer_types", "layers_block_type")).rule(),
        "position_embedding_type",
        "rope",
    ),
).family(
    "granitemoehybrid",
    "GraniteMoeHybrid",
    "attention_multiplier as the logit scale, RoPE where stated; Mamba layers are skipped",
)
