"""ModernBERT: LayerNorms without bias, fused projections, and windows to both sides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.blocks import Blocks
from dispersion.architectures.layouts import stacked
from dispersion.architectures.rotations import rope
from dispersion.architectures.windows import FULL, SLIDING, LayerKind, kinds_of, sliding_window
from dispersion.config import flag, integer
from dispersion.errors import UnsupportedError
from dispersion.rotary import RopeRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.rotary import Rotary

THETAS = {FULL: "global_rope_theta", SLIDING: "local_rope_theta"}
ROPE = rope(RopeRule(theta=160000.0, local_key=THETAS[SLIDING], local_theta=10000.0))


def kinds(config: Mapping[str, Any], layers: int) -> tuple[LayerKind, ...]:
    """Every third layer is full, or what `layer_types` says; half of `local_attention` a side.

    A `sliding_window`, which is that half, counts before it, as in the classes.
    """
    step = integer(config, "global_attn_every_n_layers", 3)
    types = [SLIDING if i % step else FULL for i in range(layers)]
    window: int | None = integer(config, "local_attention", 128, minimum=2) // 2
    if "sliding_window" in config:
        window = sliding_window(config)
    return kinds_of(config, types, window)


def rotation(config: Mapping[str, Any], layer_type: str, head_dim: int) -> Rotary | None:
    """RoPE with `global_rope_theta` on full layers and `local_rope_theta` on the others."""
    if config.get("rope_scaling"):
        msg = "rope_scaling in config.json is not supported for modernbert."
        raise UnsupportedError(msg)
    if "local_rope_theta" in config and config["local_rope_theta"] is None:
        msg = "local_rope_theta in config.json must be a number. Got null: not supported."
        raise UnsupportedError(msg)
    own = {key: config[old] for key, old in THETAS.items() if config.get(old) is not None}
    nested = config.get("rope_parameters")
    if isinstance(nested, dict) and layer_type in own and layer_type in nested:
        entry = nested[layer_type] or {}
        if isinstance(entry, dict) and entry.get("rope_theta") is None:
            # The class takes the older keys where these objects are silent.
            entry = {**entry, "rope_theta": own[layer_type]}
            config = {**config, "rope_parameters": {**nested, layer_type: entry}}
    return ROPE({**config, "rope_theta": own.get(FULL)}, layer_type, head_dim)


def vary(config: Mapping[str, Any], blocks: Blocks) -> Blocks:
    """`norm_bias` of the config."""
    if flag(config, "norm_bias", default=False):
        return replace(blocks, norm_parts=("weight", "bias"))
    return blocks


BLOCKS = Blocks(
    stack="layers",
    module="attn",
    norm="attn_norm",
    first_norm="embeddings.norm",
    sides=("Wqkv",),
    layout=stacked,
    bias="attention_bias",
    bias_absent=False,
    norm_parts=("weight",),
    eps_key="norm_eps",
    rotation=rotation,
    window=kinds,
    halved=True,
    causal=False,
    tokens="embeddings.tok_embeddings.weight",
    vary=vary,
    inside={
        r"attn\.Wo\.(weight|bias)": ledger.VALUE,
        r"attn\.rotary_emb\.inv_freq": ledger.FREQUENCIES,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"mlp_norm\.(weight|bias)": ledger.AFTER,
    },
    outside={
        r"embeddings\.tok_embeddings\.weight": ledger.EMBEDDING,
        r"embeddings\.norm\.(weight|bias)": ledger.UNASKED,
        r"final_norm\.(weight|bias)": ledger.FINAL_NORM,
        r"(head|decoder|classifier)\..+": ledger.HEAD,
    },
)
FAMILY = BLOCKS.family(
    "modernbert", "ModernBert", "LayerNorm, fused projections, RoPE, windows to both sides"
)
