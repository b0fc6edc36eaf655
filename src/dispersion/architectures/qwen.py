"""Qwen 1: fused projections with biases; past the trained length queries and the base grow.

Read off the code published with the models, which transformers does not have. With
`use_logn_attn` the query of token i counted from 1 is multiplied by log i to the base `seq_length`
where that exceeds 1; with `use_dynamic_ntk` the base of a context of n tokens is that of its first
pass. Programs that leave both out differ from it past `seq_length`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks, Keys
from dispersion.architectures.granted import check_granted
from dispersion.architectures.layouts import stacked
from dispersion.config import flag, integer, positive
from dispersion.errors import CheckpointError
from dispersion.frequencies import power_frequencies
from dispersion.growth import LogBaseGrowth
from dispersion.rotary import Rotary, rotary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from dispersion.architectures.attention import Attention
    from dispersion.architectures.blocks_reader import BlocksReader

_GRANTED: dict[str, Any] = {
    "rotary_pct": 1.0,
    "use_cache_quantization": False,
    "rope_scaling": None,
    "visual": None,
    "audio": None,
}
_LENGTH = "seq_length"


def turned(config: Mapping[str, Any], layer_type: str, head_dim: int) -> Rotary:  # noqa: ARG001
    """The whole head, in halves; the base by the length of the context."""
    theta = positive(config, "rotary_emb_base", 10000.0)
    dynamic = flag(config, "use_dynamic_ntk", default=True)
    if head_dim % 2 or (dynamic and head_dim <= 2):
        msg = f"hidden_size / num_attention_heads must be even and exceed 2. Got {head_dim}."
        raise CheckpointError(msg)
    trained = integer(config, _LENGTH)

    def at(length: int) -> NDArray[Any]:
        steps = math.ceil(math.log2(length / trained) + 1)
        alpha = max(2.0**steps - 1, 1.0)
        return power_frequencies(theta * alpha ** (head_dim / (head_dim - 2)), head_dim)

    return rotary(
        power_frequencies(theta, head_dim),
        head_dim,
        kind="dynamic" if dynamic else "default",
        rescale=at if dynamic else None,
    )


def growing(reader: BlocksReader, prefix: str, attention: Attention) -> Attention:  # noqa: ARG001
    """Attention whose queries grow past the trained length."""
    return replace(attention, growth=LogBaseGrowth(integer(reader.config, _LENGTH, minimum=2)))


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """`use_logn_attn`; other keys that change attention must say what is read."""
    check_granted(config, _GRANTED, "qwen")
    if config.get("kv_channels") is not None:
        heads = integer(config, "num_attention_heads")
        size, width = integer(config, "kv_channels"), integer(config, "hidden_size")
        if size * heads != width:
            msg = (
                "kv_channels · num_attention_heads in config.json must be hidden_size. "
                f"Got {size} · {heads} and {width}."
            )
            raise CheckpointError(msg)
    if not flag(config, "use_logn_attn", default=True):
        return blocks
    # Bounds over token ids know of no growth.
    return replace(blocks, biased=growing, tokens=None)


FAMILY = Blocks(
    stack="h",
    module="attn",
    norm="ln_1",
    norm_kind="rms",
    norm_parts=("weight",),
    keys=Keys(positions=(_LENGTH,)),
    sides=("c_attn",),
    layout=stacked,
    eps=1e-6,
    rotation=turned,
    tokens="wte.weight",
    vary=vary,
    inside={
        r"attn\.c_proj\.(weight|bias)": ledger.VALUE,
        r"attn\.rotary_emb\.inv_freq": ledger.FREQUENCIES,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"ln_2\.weight": ledger.AFTER,
    },
    outside={
        r"wte\.weight": ledger.EMBEDDING,
        r"rotary_emb\.inv_freq": ledger.FREQUENCIES,
        r"ln_f\.weight": ledger.FINAL_NORM,
        r"(.+\.)?lm_head\..+": ledger.HEAD,
    },
).family("qwen", "QWen", "fused projections with biases; queries grow with the log of the position")
