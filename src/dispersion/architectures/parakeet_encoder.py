"""Parakeet's encoder (FastConformer): conformers with sinusoids of the distance.

Models around it have its config in `encoder_config`; their decoders have no attention.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks
from dispersion.architectures.blocks_reader import BlocksReader
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.sinusoid_attention import with_sinusoids
from dispersion.checkpoint.text import shown
from dispersion.errors import CheckpointError, UnsupportedError

if TYPE_CHECKING:
    from dispersion.architectures.attention import Attention
    from dispersion.checkpoint import Checkpoint

_OWN = "parakeet_encoder"
_NORM = r"\.(weight|bias)"
# Inner configs are saved without what is as the class has it.
_ABSENT = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 8}


def biased(reader: BlocksReader, prefix: str, attention: Attention) -> Attention:  # noqa: ARG001
    """With the projection of sinusoids."""
    root = attention.module
    added = f"{root}.bias_u", f"{root}.bias_v"
    return with_sinusoids(attention, f"{root}.relative_k_proj.weight", added)


BLOCKS = Blocks(
    stack="layers",
    module="self_attn",
    norm="norm_self_att",
    bias="attention_bias",
    eps=1e-5,
    eps_key=None,
    causal=False,
    biased=biased,
    inside={
        r"self_attn\.(v_proj|o_proj)\.(weight|bias)": ledger.VALUE,
        r"feed_forward[12]\..+": ledger.FEED_FORWARD,
        rf"norm_feed_forward1{_NORM}": "norm of the feed-forward before attention",
        r"conv\..+": "convolution behind attention",
        rf"norm_(conv|feed_forward2|out){_NORM}": ledger.AFTER,
    },
    outside={
        r"subsampling\..+": ledger.EMBEDDING,
        r"(ctc_head|decoder|joint)\..+": ledger.HEAD,
    },
)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read an encoder, alone or within a model around it.

    Raises:
        CheckpointError: the inner config is no object.
        UnsupportedError: it is of another encoder.
    """
    config = checkpoint.config
    inner = config.get("encoder_config")
    if inner is None and config.get("model_type", _OWN) == _OWN:
        return BlocksReader(BLOCKS, checkpoint).plan(_OWN, asked)
    if not isinstance(inner, dict):
        msg = f"encoder_config in config.json must be an object. Got {shown(repr(inner))}."
        raise CheckpointError(msg)
    if (kind := inner.get("model_type", _OWN)) != _OWN:
        msg = (
            f"model_type of encoder_config in config.json must be {_OWN}. "
            f"Got {shown(repr(kind))}: not supported."
        )
        raise UnsupportedError(msg)
    around = {key: config[key] for key in ("model_type", "quantization_config") if key in config}
    checkpoint = replace(checkpoint, config=_ABSENT | inner | around)
    return BlocksReader(BLOCKS, checkpoint).plan(_OWN, asked)


FAMILY = Family(
    "parakeet_encoder",
    ("parakeet_encoder", "parakeet_ctc", "parakeet_rnnt", "parakeet_tdt"),
    ("ParakeetEncoder", "Parakeet"),
    "LayerNorm, products of queries with sinusoids of the distance, bidirectional",
    read,
)
