"""Qwen 4 Exp, text only: Qwen 3 Next's attention on the tokens of blocks that an indexer picks.

Gated residuals stand in front of attention; the QK norm caps queries and keys whatever they give.
Of a query's tokens in whole blocks, counted from the first one, those of `indexer_budget //
indexer_compress_ratio` blocks are seen, and all behind the last whole block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.hybrids import LINEAR, Mixed
from dispersion.architectures.windows import FULL
from dispersion.config import integer
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.windows import LayerKind

INDEXED = "indexed_attention"


def _silent(config: Mapping[str, Any], layers: int) -> list[str]:
    every = integer(config, "full_attention_interval", 4)
    return [LINEAR if (i + 1) % every else FULL for i in range(layers)]


def _kinds(config: Mapping[str, Any], layers: int) -> tuple[LayerKind, ...]:
    stated = config.get("layer_types")
    if isinstance(stated, list):  # older files call indexed layers full
        stated = [FULL if kind == INDEXED else kind for kind in stated]
    return Mixed(_silent).rule()({**config, "layer_types": stated}, layers)


def picks(config: Mapping[str, Any], kind: LayerKind) -> int:  # noqa: ARG001
    """How many keys a query sees at least, of more than so many.

    Raises:
        CheckpointError: a key is missing, or not one block is picked.
    """
    budget = integer(config, "indexer_budget")
    block = integer(config, "indexer_compress_ratio")
    if budget < block:
        msg = (
            f"indexer_budget in config.json must be at least indexer_compress_ratio={block}: else "
            f"queries may see no key. Got {budget}."
        )
        raise CheckpointError(msg)
    return budget // block * block


FAMILY = Decoder(
    names={
        r"self_attn\.indexer\..+": ledger.INDEXER,
        r"attn_hyper_connection\..+": ledger.BEFORE_NORM,
        r"mlp_hyper_connection\..+": ledger.FEED_FORWARD,
        r"ple\..+": ledger.EMBEDDING,
    },
    pre_norm=False,
    gain_offset=1.0,
    qk_norm="headwise",
    gated=True,
    head_dim=256,
    key_heads=2,
    partial=1.0,
    window=_kinds,
    picks=picks,
    embedded=False,
).family(
    "qwen4_exp_text",
    "Qwen4Exp",
    "headwise QK norm, on blocks that an indexer picks; linear layers are skipped",
)
