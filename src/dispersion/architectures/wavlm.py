"""WavLM: wav2vec 2, with relative biases that the states of a query's token gate.

The bias of a row is g·b: b comes from a table by distance that all layers share, and the gate
g = a(bc − 1) + 2 from the query's token, a and b between 0 and 1, c a parameter of the head.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures import ledger, wav2vec2
from dispersion.config import integer

if TYPE_CHECKING:
    from dispersion.architectures.blocks import Tables
    from dispersion.architectures.blocks_reader import BlocksReader


def tables(reader: BlocksReader, prefix: str, layer: int) -> Tables:  # noqa: ARG001
    """The first layer's table."""
    rows = integer(reader.config, "num_buckets", 320)
    return ((f"{prefix}encoder.layers.0.attention.rel_attn_embed.weight", rows),)


def gate(module: str) -> str:
    """The parameter of a layer's gates."""
    return f"{module}.gru_rel_pos_const"


FAMILY = replace(
    wav2vec2.BLOCKS,
    tables=tables,
    gate=gate,
    inside={
        **wav2vec2.INSIDE,
        r"attention\.gru_rel_pos_linear\.(weight|bias)": "its gate is bounded whatever it says",
        r"attention\.rel_attn_embed\.weight": ledger.UNASKED,
    },
).family("wavlm", "WavLM", "as wav2vec2, with relative biases that each query gates")
