"""Megatron-BERT: BERT with a LayerNorm in front of attention, and none behind the embeddings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import bert, electra, ledger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.blocks import Blocks


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """`position_embedding_type` of the config must be what the class does."""
    bert.absolute(config, "this model")
    return blocks


BLOCKS = replace(
    electra.BLOCKS,
    norm="attention.ln",
    post_norm=False,
    first_norm=None,
    vary=vary,
    inside={**bert.NAMING.inside, r"ln\.(weight|bias)": ledger.AFTER},
    outside={**bert.NAMING.outside, r"encoder\.ln\.(weight|bias)": ledger.FINAL_NORM},
)

FAMILY = BLOCKS.family(
    "megatron_bert", "MegatronBert", "as bert, LayerNorm before attention", types=("megatron-bert",)
)
