"""RemBERT: BERT, whose first layer reads a projection of narrower embeddings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import bert, electra, ledger
from dispersion.config import integer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.blocks import Blocks

_MAP = "encoder.embedding_hidden_mapping_in"


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """`input_embedding_size` of the config."""
    bert.absolute(config, "rembert")
    return replace(blocks, first_map=(_MAP, integer(config, "input_embedding_size", 256)))


FAMILY = replace(
    electra.BLOCKS,
    vary=vary,
    outside={
        **bert.NAMING.outside,
        r"encoder\.embedding_hidden_mapping_in\.(weight|bias)": ledger.UNASKED,
    },
).family("rembert", "RemBert", "as electra; layer 0 always reads a projection")
