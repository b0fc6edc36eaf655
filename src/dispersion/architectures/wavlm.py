"""WavLM: wav2vec 2, with relative biases that the states of a query's token gate.

The bias of a row is g·b: b comes from a table by distance that all layers share, and the gate
g = a(bc − 1) + 2 from the query's token, a and b between 0 and 1, c a parameter of the head.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures import ledger, wav2vec2
from dispersion.architectures.biased_attention import with_tables
from dispersion.config import integer

if TYPE_CHECKING:
    from dispersion.architectures.attention import Attention
    from dispersion.architectures.blocks_reader import BlocksReader


def biased(reader: BlocksReader, prefix: str, attention: Attention) -> Attention:
    """With the first layer's table and a layer's own gates."""
    rows = integer(reader.config, "num_buckets", 320)
    table = f"{prefix}encoder.layers.0.attention.rel_attn_embed.weight"
    return with_tables(attention, (table, rows), gate=f"{attention.module}.gru_rel_pos_const")


FAMILY = replace(
    wav2vec2.BLOCKS,
    biased=biased,
    inside={
        **wav2vec2.INSIDE,
        r"attention\.gru_rel_pos_linear\.(weight|bias)": "its gate is bounded whatever it says",
        r"attention\.rel_attn_embed\.weight": ledger.UNASKED,
    },
).family("wavlm", "WavLM", "as wav2vec2, with relative biases that each query gates")
