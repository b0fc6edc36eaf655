"""RoBERTa and its like: BERT, with positions that count from behind the padding's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispersion.architectures.bert import read_encoder
from dispersion.architectures.plans import Family, Plan
from dispersion.config import integer

if TYPE_CHECKING:
    from dispersion.checkpoint import Checkpoint


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read an encoder; the first token's position is the one after `pad_token_id`."""
    padding = integer(checkpoint.config, "pad_token_id", 1, minimum=0)
    return read_encoder(checkpoint, asked, "roberta", padding + 1)


FAMILY = Family(
    "roberta",
    ("roberta", "camembert", "data2vec-text", "xlm-roberta"),
    ("Roberta", "Camembert", "Data2VecText", "XLMRoberta"),
    "as bert, with positions that start behind the padding index",
    read,
)
