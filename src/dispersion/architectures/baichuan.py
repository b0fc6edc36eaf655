"""Baichuan 1 and 2: queries, keys and values side by side; RoPE at 7B, ALiBi at 13B.

Read off the code published with the models, which transformers does not have. One model_type
stands for two classes of one name, and no key says which: the config of the 7B class has
`max_position_embeddings`, that of the 13B class has not, and their sizes differ.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.alibi import bloom_slope
from dispersion.architectures.blocks import Blocks, Keys
from dispersion.architectures.granted import check_granted
from dispersion.architectures.layouts import stacked
from dispersion.architectures.rotations import rope
from dispersion.config import integer
from dispersion.errors import UnsupportedError
from dispersion.position_bias import LinearBias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.architectures.plans import Plan
    from dispersion.checkpoint import Checkpoint
    from dispersion.enclosure import Enclosure

_SMALL, _LARGE = 4096, 5120  # hidden sizes of 7B and 13B
_GRANTED = {"rope_scaling": None, "rope_theta": 10000.0}


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """RoPE or ALiBi, where the position key and the sizes agree on one of the two classes."""
    turns = config.get("max_position_embeddings") is not None
    width = integer(config, "hidden_size")
    if width == (_LARGE if turns else _SMALL) or not (turns or "model_max_length" in config):
        msg = (
            "max_position_embeddings in config.json must be there for Baichuan 7B, and "
            "model_max_length alone for 13B, which has ALiBi in place of RoPE. Got hidden_size="
            f"{width} {'with' if turns else 'without'} max_position_embeddings: not supported."
        )
        raise UnsupportedError(msg)
    check_granted(config, _GRANTED, "baichuan")
    if turns:
        return blocks
    # Bounds over token ids know of no biases.
    return replace(blocks, rotation=None, position_bias=_bias, tokens=None)


def _bias(heads: int, scale: Enclosure, head: int) -> LinearBias:  # noqa: ARG001
    return LinearBias(bloom_slope(heads, head))


BLOCKS = Blocks(
    stack="layers",
    module="self_attn",
    norm="input_layernorm",
    norm_kind="rms",
    norm_parts=("weight",),
    keys=Keys(positions=("max_position_embeddings", "model_max_length")),
    sides=("W_pack",),
    layout=stacked,
    bias=False,
    eps=1e-6,
    eps_key="rms_norm_eps",
    rotation=rope(),
    tokens="embed_tokens.weight",
    vary=vary,
    inside={
        r"self_attn\.o_proj\.weight": ledger.VALUE,
        r"self_attn\.rotary_emb\.inv_freq": ledger.FREQUENCIES,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"post_attention_layernorm\.weight": ledger.AFTER,
    },
    outside={
        r"embed_tokens\.weight": ledger.EMBEDDING,
        r"norm\.weight": ledger.FINAL_NORM,
        r"(.+\.)?lm_head\..+": ledger.HEAD,
    },
)
# GGUF files hold queries, keys and values apart.
APART = replace(
    BLOCKS,
    sides=("q_proj", "k_proj"),
    layout=None,
    inside={**BLOCKS.inside, r"self_attn\.v_proj\.weight": ledger.VALUE},
)
_FAMILY = BLOCKS.family(
    "baichuan", ("Baichuan", "BaiChuan"), "one projection; RoPE at 7B, ALiBi at 13B"
)


def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
    """Read a config of either class, or a GGUF file."""
    if checkpoint.format == "gguf":
        return APART.family("baichuan", (), "").read(checkpoint, layers)
    return _FAMILY.read(checkpoint, layers)


FAMILY = replace(_FAMILY, read=read)
