"""GPT-BigCode (StarCoder 1): GPT-2 whose query heads share one key head."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import gpt2
from dispersion.architectures.blocks import GPT, Blocks
from dispersion.architectures.layouts import grouped, stacked
from dispersion.config import flag

if TYPE_CHECKING:
    from collections.abc import Mapping


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """`multi_query`: one key for all heads; else queries, keys and values lie head by head."""
    if not flag(config, "scale_attn_weights", default=True):
        blocks = replace(blocks, scale="one")
    if flag(config, "multi_query", default=True):
        return replace(blocks, key_heads=1, layout=stacked)
    return blocks


FAMILY = Blocks(
    stack=gpt2.NAMING.stack,
    module=gpt2.NAMING.module,
    norm="ln_1",
    keys=GPT,
    sides=("c_attn",),
    layout=grouped,
    table="wpe.weight",
    positions_absent=1024,
    tokens="wte.weight",
    vary=vary,
    inside=gpt2.NAMING.inside,
    outside=gpt2.NAMING.outside,
    refused=gpt2.NAMING.refused or {},
).family("gpt_bigcode", "GPTBigCode", "LayerNorm, biases, learned positions, one key head for all")
