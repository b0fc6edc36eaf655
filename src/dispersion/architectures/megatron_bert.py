"""Megatron-BERT: BERT with a LayerNorm in front of attention, and none behind the embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.architectures import bert, ledger
from dispersion.architectures.blocks import Blocks

if TYPE_CHECKING:
    from collections.abc import Mapping


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """`position_embedding_type` of the config must be what the class does."""
    bert.absolute(config, "this model")
    return blocks


BLOCKS = Blocks(
    stack=bert.NAMING.stack,
    module=bert.NAMING.module,
    norm="attention.ln",
    sides=("query", "key"),
    eps=1e-12,
    eps_key="layer_norm_eps",
    causal="is_decoder",
    table="embeddings.position_embeddings.weight",
    positions_absent=512,
    tokens="embeddings.word_embeddings.weight",
    types="embeddings.token_type_embeddings.weight",
    vary=vary,
    inside={**bert.NAMING.inside, r"ln\.(weight|bias)": ledger.AFTER},
    outside={**bert.NAMING.outside, r"encoder\.ln\.(weight|bias)": ledger.FINAL_NORM},
    refused=bert.NAMING.refused or {},
)

FAMILY = BLOCKS.family(
    "megatron_bert", "MegatronBert", "as bert, LayerNorm before attention", types=("megatron-bert",)
)
