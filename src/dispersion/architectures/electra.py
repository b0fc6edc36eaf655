"""ELECTRA: BERT, but its embeddings may be narrower and projected before the first layer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import bert, ledger
from dispersion.architectures.blocks import Blocks
from dispersion.config import integer

if TYPE_CHECKING:
    from collections.abc import Mapping


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """`embedding_size` of the config."""
    bert.absolute(config, "electra")
    size = integer(config, "embedding_size", 128)
    if size == integer(config, "hidden_size", 256):
        return blocks
    return replace(blocks, first_map=("embeddings_project", size))


BLOCKS = Blocks(
    stack=bert.NAMING.stack,
    module=bert.NAMING.module,
    norm="output.LayerNorm",
    post_norm=True,
    first_norm="embeddings.LayerNorm",
    sides=("query", "key"),
    eps=1e-12,
    eps_key="layer_norm_eps",
    causal="is_decoder",
    table="embeddings.position_embeddings.weight",
    positions_absent=512,
    tokens="embeddings.word_embeddings.weight",
    types="embeddings.token_type_embeddings.weight",
    vary=vary,
    inside=bert.NAMING.inside,
    outside={
        **bert.NAMING.outside,
        r"embeddings_project\.(weight|bias)": ledger.UNASKED,
        r"(discriminator|generator)_.+": "output head",
    },
    refused=bert.NAMING.refused or {},
)

FAMILY = BLOCKS.family(
    "electra", "Electra", "as bert; layer 0 may read a projection of narrower embeddings"
)
