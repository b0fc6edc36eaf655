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
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from dispersion.architectures.attention import Attention
    from dispersion.checkpoint import Checkpoint

_NORM = r"\.(weight|bias)"


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
        r"ctc_head\..+": ledger.HEAD,
    },
)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read an encoder, alone or within a model around it.

    Raises:
        CheckpointError: the inner config is no object.
    """
    config = checkpoint.config
    if config.get("model_type", "parakeet_encoder") != "parakeet_encoder":
        inner = config.get("encoder_config")
        if not isinstance(inner, dict):
            msg = f"encoder_config in config.json must be an object. Got {shown(repr(inner))}."
            raise CheckpointError(msg)
        quantised = config.get("quantization_config")
        outer = {"model_type": config["model_type"], "quantization_config": quantised}
        checkpoint = replace(checkpoint, config=inner | outer)
    return BlocksReader(BLOCKS, checkpoint).plan("parakeet_encoder", asked)


FAMILY = Family(
    "parakeet_encoder",
    ("parakeet_encoder", "parakeet_ctc"),
    ("ParakeetEncoder", "Parakeet"),
    "LayerNorm, products of queries with sinusoids of the distance, bidirectional",
    read,
)
