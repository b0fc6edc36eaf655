"""ELECTRA: BERT, but its embeddings may be narrower and projected before the first layer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import bert, ledger
from dispersion.architectures.blocks import Blocks
from dispersion.checkpoint.text import shown
from dispersion.config import integer
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """`embedding_size` of the config."""
    kind = config.get("position_embedding_type")
    if kind not in (None, "absolute"):
        got = shown(repr(kind))
        msg = f"position_embedding_type must be absolute for electra. Got {got}: not supported."
        raise UnsupportedError(msg)
    size = integer(config, "embedding_size", 128)
    if size == integer(config, "hidden_size", 256):
        return blocks
    return replace(blocks, first_map=("embeddings_project", size))


FAMILY = Blocks(
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
).family("electra", "Electra", "as bert; layer 0 may read a projection of narrower embeddings")
