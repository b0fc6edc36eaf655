"""TrOCR's decoder: built like BART's; the image encoder whose output it reads is another model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.seq2seq import Rules
from dispersion.config import flag

if TYPE_CHECKING:
    from dispersion.checkpoint import Checkpoint

CLASSES = ("TrOCR",)
NOTES = "decoder; LayerNorm behind each, cross-attention is refused"


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read a config that says whether a norm and learned positions stand in front of layer 0."""
    config = checkpoint.config
    normed = flag(config, "layernorm_embedding", default=True)
    learned = flag(config, "use_learned_position_embeddings", default=True)
    rules = Rules(
        before=False,
        embedding_norm=("decoder",) if normed else (),
        table_before=2 if learned else None,
        positions=512 if learned else None,
    )
    return rules.family("trocr", CLASSES, NOTES).read(checkpoint, asked)


FAMILY = Family("trocr", ("trocr",), CLASSES, NOTES, read)
