"""RoBERTa with a LayerNorm in front of attention, and one behind the embeddings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import bert, ledger, megatron_bert
from dispersion.config import integer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.blocks import Blocks


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """Positions start behind `pad_token_id`; which row one reads hangs on the tokens."""
    bert.absolute(config, "this model")
    before = integer(config, "pad_token_id", 1, minimum=0) + 1
    return replace(blocks, table_before=before, table_whole=True)


_NORM = r"LayerNorm\.(weight|bias|gamma|beta)"
BLOCKS = replace(
    megatron_bert.BLOCKS,
    norm="attention.LayerNorm",
    tokens=None,
    vary=vary,
    inside={**bert.NAMING.inside, rf"(intermediate\.)?{_NORM}": ledger.AFTER},
    outside={**bert.NAMING.outside, rf"(encoder\.)?{_NORM}": ledger.FINAL_NORM},
)

FAMILY = BLOCKS.family(
    "roberta_prelayernorm",
    "RobertaPreLayerNorm",
    "as roberta, LayerNorm before attention",
    types=("roberta-prelayernorm",),
)
