"""MPT: LayerNorm without bias, fused projections, ALiBi. `qk_ln` is ignored by its own code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.alibi import mpt_slope
from dispersion.architectures.assemble import assemble, split
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import clip_of, inverse_root
from dispersion.checkpoint.text import shown
from dispersion.config import flag, integer, positive
from dispersion.enclosure import Enclosure
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.position_bias import LinearBias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.checkpoint import Checkpoint

NAMING = ledger.Naming(
    stack="blocks",
    module="attn",
    near=("norm_1",),
    inside={
        r"attn\.out_proj\.weight": ledger.VALUE,
        r"ffn\..+": ledger.FEED_FORWARD,
        r"norm_2\.weight": ledger.AFTER,
    },
    outside={
        r"wte\.weight": ledger.EMBEDDING,
        r"norm_f\.weight": ledger.FINAL_NORM,
        r"(.+\.)?lm_head\..+": ledger.HEAD,
    },
)
# Keys that change attention in the code that came with some checkpoints, not in transformers.
_REFUSED = {"qk_ln": False, "prefix_lm": False, "alibi": True}


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read a config with `attn_config`."""
    config = checkpoint.config
    inner = config.get("attn_config") or {}
    if not isinstance(inner, dict):
        msg = f"attn_config in config.json must be an object. Got {shown(repr(inner))}."
        raise CheckpointError(msg)
    for key, only in _REFUSED.items():
        if flag(inner, key, default=only, where="attn_config") is not only:
            msg = f"{key} in attn_config must be {str(only).lower()} for mpt. Got {not only}."
            raise UnsupportedError(msg)
    layers = integer(config, "n_layers", maximum=ledger.MOST_LAYERS)
    heads, width = integer(config, "n_heads"), integer(config, "d_model")
    head_dim = split(width, heads, "d_model", "n_heads")
    largest = positive(inner, "alibi_bias_max", 8.0, where="attn_config")
    stated = config.get("max_seq_len") is not None

    def describe(prefix: str, layer: int) -> Attention:
        root = f"{prefix}blocks.{layer}."
        query, key = (
            Projection(f"{root}attn.Wqkv.weight", None, heads, first=first, outputs=3 * width)
            for first in (0, width)
        )
        return Attention(
            module=f"{root}attn",
            layer=layer,
            width=width,
            head_dim=head_dim,
            query=query,
            key=key,
            input_norm=Norm("layer", f"{root}norm_1.weight"),
            scale=_scale(inner, head_dim),
            position_bias=lambda head: LinearBias(mpt_slope(heads, largest, head)),
            clip=clip_of(inner),
        )

    return assemble(
        checkpoint,
        NAMING,
        describe,
        family="mpt",
        layers=layers,
        layers_key="n_layers",
        asked=asked,
        facts={"max_positions": integer(config, "max_seq_len") if stated else None},
    )


def _scale(inner: Mapping[str, Any], head_dim: int) -> Enclosure:
    if inner.get("softmax_scale") is None:
        return inverse_root(head_dim)
    return Enclosure.exact(positive(inner, "softmax_scale", where="attn_config"))


FAMILY = Family(
    "mpt", ("mpt",), ("Mpt",), "LayerNorm without bias, ALiBi, clip_qkv; qk_ln is refused", read
)
