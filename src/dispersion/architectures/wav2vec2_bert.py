"""Wav2Vec2-BERT: conformers, whose keys get rows of a table of distances.

A layer's heads share the table. It has a row for each distance, those beyond its ends sharing the
last. Sinusoids of the distance, as in its predecessor, are read too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks
from dispersion.architectures.distance_attention import with_distances
from dispersion.architectures.sinusoid_attention import with_sinusoids
from dispersion.checkpoint.text import shown
from dispersion.config import integer
from dispersion.distance_bias import Places
from dispersion.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dispersion.architectures.attention import Attention
    from dispersion.architectures.blocks_reader import BlocksReader

_NORM = r"\.(weight|bias)"


def by_kind(
    absent: str, name: str, *others: str
) -> Callable[[BlocksReader, str, Attention], Attention]:
    """How positions enter, by `position_embeddings_type`, which is `absent` where it is absent.

    The class `name` knows sinusoids, and the `others`.
    """

    def biased(reader: BlocksReader, prefix: str, attention: Attention) -> Attention:  # noqa: ARG001
        config, root = reader.config, attention.module
        kind = config.get("position_embeddings_type", absent)
        if kind is None:
            return attention
        if kind == "relative":
            added = f"{root}.pos_bias_u", f"{root}.pos_bias_v"
            return with_sinusoids(attention, f"{root}.linear_pos.weight", added)
        if kind not in others:
            known = " or ".join(("relative", *others))
            msg = (
                f"position_embeddings_type in config.json must be {known} or null for {name}. "
                f"Got {shown(repr(kind))}: not supported."
            )
            raise UnsupportedError(msg)
        before = integer(config, "left_max_position_embeddings", 64, minimum=0)
        behind = integer(config, "right_max_position_embeddings", 8, minimum=0)
        table = f"{root}.distance_embedding.weight"
        return with_distances(attention, table, Places(-behind, before), direct=True)

    return biased


BLOCKS = Blocks(
    stack="encoder.layers",
    module="self_attn",
    norm="self_attn_layer_norm",
    sides=("linear_q", "linear_k"),
    eps_key="layer_norm_eps",
    causal=False,
    biased=by_kind("relative_key", "wav2vec2-bert", "relative_key"),
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
)

FAMILY = BLOCKS.family(
    "wav2vec2_bert",
    "Wav2Vec2Bert",
    "LayerNorm, keys with rows of a table of distances, bidirectional",
    types=("wav2vec2-bert",),
)
