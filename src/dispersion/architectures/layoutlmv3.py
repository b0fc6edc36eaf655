"""LayoutLMv3: BERT on text and patches, with relative biases by order and by place on the page.

Without an image the first layer reads another norm than with one: nothing is said of its cap.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures import bert, electra, ledger, megatron_bert
from dispersion.architectures.biased_attention import with_tables
from dispersion.config import flag, integer

if TYPE_CHECKING:
    from dispersion.architectures.attention import Attention
    from dispersion.architectures.blocks_reader import BlocksReader


def biased(reader: BlocksReader, prefix: str, attention: Attention) -> Attention:
    """With the biases that all layers share; those by place only beside those by order."""
    config, tables = reader.config, []
    if flag(config, "has_relative_attention_bias", default=True):
        tables.append(("rel_pos_bias", integer(config, "rel_pos_bins", 32)))
        if flag(config, "has_spatial_attention_bias", default=True):
            bins = integer(config, "rel_2d_pos_bins", 64)
            tables += [("rel_pos_x_bias", bins), ("rel_pos_y_bias", bins)]
    named = [(f"{prefix}encoder.{name}.weight", rows) for name, rows in tables]
    # Tables by order come first, those by place on the page behind them.
    placed = len(named) > 1
    return with_tables(attention, *named, across=True, factor=attention.scale, placed=placed)


FAMILY = replace(
    electra.BLOCKS,
    first_norm=None,
    table=None,  # patches come behind its positions
    tokens=None,
    causal=False,  # its code has no decoder
    biased=biased,
    vary=megatron_bert.vary,
    outside={
        **bert.NAMING.outside,
        r"encoder\.rel_pos(_[xy])?_bias\.weight": ledger.UNASKED,
        r"(embeddings\.)?LayerNorm\.(weight|bias)|norm\.(weight|bias)": ledger.EMBEDDING,
        r"(patch_embed|visual)\..+|cls_token|pos_embed": ledger.EMBEDDING,
        r"qa_outputs\..+": ledger.HEAD,
    },
).family("layoutlmv3", "LayoutLMv3", "as bert, relative biases; no cap on layer 0")
