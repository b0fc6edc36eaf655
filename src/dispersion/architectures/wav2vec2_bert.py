"""Wav2Vec2-BERT: conformers, whose keys get rows of a table of distances; its rows are per head.

The table has a row for each distance from query to key, those beyond its ends sharing the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks
from dispersion.architectures.distance_attention import with_distances
from dispersion.checkpoint.text import shown
from dispersion.config import integer
from dispersion.distance_bias import Places
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from dispersion.architectures.attention import Attention
    from dispersion.architectures.blocks_reader import BlocksReader

_NORM = r"\.(weight|bias)"


def biased(reader: BlocksReader, prefix: str, attention: Attention) -> Attention:  # noqa: ARG001
    """With its table, where the config has one.

    Raises:
        UnsupportedError: positions enter in another way.
    """
    config = reader.config
    kind = config.get("position_embeddings_type", "relative_key")
    if kind is None:
        return attention
    if kind != "relative_key":
        msg = (
            "position_embeddings_type in config.json must be relative_key or null for "
            f"wav2vec2-bert. Got {shown(repr(kind))}: not supported."
        )
        raise UnsupportedError(msg)
    before = integer(config, "left_max_position_embeddings", 64, minimum=0)
    behind = integer(config, "right_max_position_embeddings", 8, minimum=0)
    table = f"{attention.module}.distance_embedding.weight"
    return with_distances(attention, table, Places(-behind, before), direct=True)


FAMILY = Blocks(
    stack="encoder.layers",
    module="self_attn",
    norm="self_attn_layer_norm",
    sides=("linear_q", "linear_k"),
    eps_key="layer_norm_eps",
    causal=False,
    biased=biased,
    inside={
        r"self_attn\.linear_(v|out)\.(weight|bias)": ledger.VALUE,
        r"ffn[12]\..+": ledger.FEED_FORWARD,
        rf"ffn1_layer_norm{_NORM}": "norm of the feed-forward before attention",
        r"conv_module\..+": "convolution behind attention",
        rf"(ffn2|final)_layer_norm{_NORM}": ledger.AFTER,
    },
    outside={
        r"feature_projection\..+|masked_spec_embed": ledger.EMBEDDING,
        r"(lm_head|classifier|projector|tdnn|feature_extractor|objective)\..+": ledger.HEAD,
    },
).family(
    "wav2vec2_bert",
    "Wav2Vec2Bert",
    "LayerNorm, keys with rows of a table of distances, bidirectional",
    types=("wav2vec2-bert",),
)
