"""ESM: protein models with BERT's names, a LayerNorm in front of attention, and RoPE."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks
from dispersion.architectures.rotations import rope
from dispersion.checkpoint.text import shown
from dispersion.config import flag, integer
from dispersion.enclosure import Enclosure
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """`position_embedding_type`: rotary, or a table whose first rows are the padding's."""
    kind = config.get("position_embedding_type", "absolute")
    for key in ("rope_parameters", "rope_scaling"):
        if config.get(key):
            msg = f"{key} in config.json is not supported for esm, whose own code ignores it."
            raise UnsupportedError(msg)
    if kind == "rotary":
        return _tokens(config, replace(blocks, rotation=rope()))
    if kind != "absolute":
        got = shown(repr(kind))
        msg = f"position_embedding_type must be rotary or absolute for esm. Got {got}."
        raise UnsupportedError(msg)
    before = integer(config, "pad_token_id", minimum=0) + 1
    table = "embeddings.position_embeddings.weight"
    return replace(blocks, table=table, table_before=before, table_whole=True)


def _tokens(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """What the first layer reads.

    With `token_dropout`, zeros for the mask token, and other rows times 0.88 over the share of a
    context's tokens that are no masks.
    """
    dropout = flag(config, "token_dropout", default=False)
    if flag(config, "emb_layer_norm_before", default=False):
        return blocks  # a norm of a norm
    if dropout and config.get("mask_token_id") is None:
        return blocks  # its own code cannot run
    blocks = replace(blocks, tokens="embeddings.word_embeddings.weight")
    if not dropout:
        return blocks
    mask = integer(config, "mask_token_id", minimum=0)
    return replace(blocks, token_scale=Enclosure(0.88 * (1 - 2.0**-20), 2.0**60), zeroed=mask)


FAMILY = Blocks(
    stack="encoder.layer",
    module="attention.self",
    norm="attention.LayerNorm",
    sides=("query", "key"),
    eps=1e-12,
    eps_key="layer_norm_eps",
    causal="is_decoder",
    positions_absent=1026,
    vary=vary,
    inside={
        r"attention\.self\.value\.(weight|bias)": ledger.VALUE,
        r"attention\.output\.dense\.(weight|bias)": ledger.VALUE,
        r"attention\.self\.rotary_embeddings\.inv_freq": ledger.FREQUENCIES,
        r"LayerNorm\.(weight|bias|gamma|beta)": ledger.AFTER,
        r"(intermediate|output)\.dense\.(weight|bias)": ledger.FEED_FORWARD,
    },
    outside={
        r"embeddings\.(word|position)_embeddings\.weight": ledger.EMBEDDING,
        r"embeddings\.position_ids": "index buffer",
        r"embeddings\.layer_norm\.(weight|bias)": ledger.EMBEDDING,
        # The star is no pattern: some files hold a tensor of this very name.
        r"(encoder\.layer\.\*\.attention\.self\.)?rotary_embeddings\.inv_freq": ledger.FREQUENCIES,
        r"encoder\.emb_layer_norm_after\.(weight|bias)": ledger.FINAL_NORM,
        r"(.+\.)?contact_head\..+": ledger.HEAD,
        r"(lm_head|classifier)\..+|lm_head\.bias": ledger.HEAD,
        r"pooler\..+": "pooler",
    },
    refused={r"crossattention\..+": "cross-attention: its keys come from another model"},
).family("esm", "Esm", "LayerNorm, biases, bidirectional, RoPE or learned positions")
