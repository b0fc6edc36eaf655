"""DBRX: LayerNorm without bias, fused projections, clamped queries and keys, RoPE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.assemble import assemble, split
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import clip_of, inverse_root, with_factor
from dispersion.checkpoint.text import shown
from dispersion.config import integer, positive
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.rotary import rotary_from_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.checkpoint import Checkpoint
    from dispersion.rotary import Rotary

NAMING = ledger.Naming(
    stack="blocks",
    module="norm_attn_norm.attn",
    near=("norm_attn_norm.norm_1",),
    inside={
        r"norm_attn_norm\.attn\.out_proj\.weight": ledger.VALUE,
        r"ffn\..+": ledger.FEED_FORWARD,
        r"norm_attn_norm\.norm_2\.weight": ledger.AFTER,
    },
    outside={
        r"wte\.weight": ledger.EMBEDDING,
        r"norm_f\.weight": ledger.FINAL_NORM,
        r"(.+\.)?lm_head\..+": ledger.HEAD,
    },
)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read a config with `attn_config`."""
    config = checkpoint.config
    inner = config.get("attn_config") or {}
    if not isinstance(inner, dict):
        msg = f"attn_config in config.json must be an object. Got {shown(repr(inner))}."
        raise CheckpointError(msg)
    layers = integer(config, "n_layers", maximum=ledger.MOST_LAYERS)
    heads, width = integer(config, "n_heads"), integer(config, "d_model")
    head_dim = split(width, heads, "d_model", "n_heads")
    key_heads = integer(inner, "kv_n_heads", 1, where="attn_config")
    split(heads, key_heads, "n_heads", "kv_n_heads")
    rotary = _rotary(config, inner, head_dim)
    scale, _ = with_factor(inverse_root(head_dim), rotary)
    outputs = (heads + 2 * key_heads) * head_dim
    stated = config.get("max_seq_len") is not None

    def describe(prefix: str, layer: int) -> Attention:
        root = f"{prefix}blocks.{layer}.norm_attn_norm."
        name = f"{root}attn.Wqkv.weight"
        return Attention(
            module=f"{root}attn",
            layer=layer,
            width=width,
            head_dim=head_dim,
            query=Projection(name, None, heads, outputs=outputs),
            key=Projection(name, None, key_heads, first=width, outputs=outputs),
            input_norm=Norm("layer", f"{root}norm_1.weight"),
            scale=scale,
            rotary=rotary,
            clip=clip_of(inner),
        )

    return assemble(
        checkpoint,
        NAMING,
        describe,
        family="dbrx",
        layers=layers,
        layers_key="n_layers",
        asked=asked,
        facts={"max_positions": integer(config, "max_seq_len") if stated else None},
    )


def _rotary(config: Mapping[str, Any], inner: Mapping[str, Any], head_dim: int) -> Rotary | None:
    """The base stands in `attn_config`, at the top, or in both alike."""
    usual = dict(config)
    parameters = config.get("rope_parameters") or {}
    theta = config.get("rope_theta") or parameters.get("rope_theta")
    if inner.get("rope_theta") is not None:
        own = positive(inner, "rope_theta", where="attn_config")
        if theta is not None and theta != own:
            msg = (
                "rope_theta in attn_config must be the one outside it, since versions of the "
                f"model's code read either. Got {own:g} and {shown(repr(theta))}."
            )
            raise UnsupportedError(msg)
        usual["rope_theta"] = own
    rotary = rotary_from_config(usual, None, head_dim)
    if rotary is not None and rotary.unrotated.size:
        msg = "partial_rotary_factor in config.json must be 1 for dbrx. Got another number."
        raise UnsupportedError(msg)
    return rotary


FAMILY = Family("dbrx", ("dbrx",), ("Dbrx",), "LayerNorm without bias, clip_qkv, RoPE", read)
