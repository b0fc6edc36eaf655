"""Moonshine: an audio encoder and a text decoder, both of which turn; LayerNorms without biases."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.decoder import Decoder
from dispersion.architectures.turned_stacks import Pair
from dispersion.config import integer
from dispersion.errors import UnsupportedError
from dispersion.rotary import RopeRule

if TYPE_CHECKING:
    from dispersion.checkpoint import Checkpoint

_SIZES = {"num_hidden_layers": 6, "num_attention_heads": 8}


def config(checkpoint: Checkpoint, side: str) -> dict[str, Any]:
    """The model's, with one stack's sizes.

    Raises:
        UnsupportedError: the stacks' heads differ, or share keys, with which its code cannot run.
    """
    whole = checkpoint.config
    heads = {}
    for each in ("encoder", "decoder"):
        count = integer(whole, f"{each}_num_attention_heads", 8)
        heads[f"{each}_num_attention_heads"] = count
        heads[f"{each}_num_key_value_heads"] = integer(whole, f"{each}_num_key_value_heads", count)
    if len(set(heads.values())) > 1:
        got = ", ".join(f"{key}={value}" for key, value in heads.items())
        msg = (
            f"heads of both stacks must be as many, and none share keys. Got {got}: not supported."
        )
        raise UnsupportedError(msg)
    own = {key: integer(whole, f"{side}_{key}", absent) for key, absent in _SIZES.items()}
    return {**whole, **own, "num_key_value_heads": own["num_attention_heads"]}


DECODER = Decoder(
    norm="layer",
    eps=1e-5,
    eps_key=None,
    rope=RopeRule(interleaved=True),
    partial=0.9,
)

FAMILY = Pair(
    encoder=replace(DECODER, bidirectional="always", embedded=False),
    decoder=DECODER,
    config=config,
    cross="encoder_attn",
    cross_norm="post_attention_layernorm",
    end="layer_norm",
    inside={r"final_layernorm\.weight": ledger.AFTER},
    outside={r"(conv\d|groupnorm)\.(weight|bias)": ledger.EMBEDDING},
).family("moonshine", "Moonshine", "interleaved partial RoPE; encoder, decoder and cross-attention")
