"""HyperCLOVA X: Granite's attention; without attention_multiplier the usual logit scale."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.decoder_reader import Reader

if TYPE_CHECKING:
    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint

KEY = "attention_multiplier"
RULES = Decoder(
    multiplier_key=KEY,
    embedding_key="embedding_multiplier",
    names={r"post_norm[12]\.weight": ledger.AFTER},
)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config whose logit scale may be null."""
    silent = checkpoint.config.get(KEY) is None
    rules = replace(RULES, multiplier_key=None) if silent else RULES
    return Reader(rules, checkpoint).plan("hyperclovax", layers)


FAMILY = replace(
    RULES.family("hyperclovax", "HyperCLOVAX", "Granite's attention with norms behind each part"),
    read=read,
)
