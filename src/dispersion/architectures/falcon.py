"""Falcon: LayerNorm, fused projections in three layouts, RoPE or ALiBi.

ALiBi is added before the logit scale. transformers' eager attention adds it twice, its default
(scaled_dot_product_attention) once; once is what is certified.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dispersion.architectures import ledger
from dispersion.architectures.alibi import bloom_slope, in_bfloat16
from dispersion.architectures.assemble import assemble, split
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root, times, with_factor
from dispersion.config import flag, integer, positive
from dispersion.embedding import EmbeddingInput
from dispersion.errors import CheckpointError, UnsupportedError
from dispersion.position_bias import LinearBias
from dispersion.rotary import rotary_from_config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from dispersion.checkpoint import Checkpoint
    from dispersion.enclosure import Enclosure
    from dispersion.rotary import Rotary

NAMING = ledger.Naming(
    stack="h",
    module="self_attention",
    near=("input_layernorm", "ln_attn"),
    inside={
        r"self_attention\.dense\.(weight|bias)": ledger.VALUE,
        r"self_attention\.rotary_emb\.inv_freq": ledger.FREQUENCIES,
        r"mlp\..+": ledger.FEED_FORWARD,
        r"(ln_mlp|post_attention_layernorm)\.(weight|bias)": ledger.AFTER,
    },
    outside={
        r"word_embeddings\.weight": ledger.EMBEDDING,
        r"ln_f\.(weight|bias)": ledger.FINAL_NORM,
        r"(.+\.)?lm_head\..+": ledger.HEAD,
    },
)
# Positions and slopes are rounded to bfloat16, and so is their product: two roundings of 2^-9.
BFLOAT16 = 2.0**-8 + 2.0**-16


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read any of the three layouts."""
    config = checkpoint.config
    layers = integer(config, "num_hidden_layers", maximum=ledger.MOST_LAYERS)
    width, heads = integer(config, "hidden_size"), integer(config, "num_attention_heads")
    head_dim = split(width, heads, "hidden_size", "num_attention_heads")
    grouped = flag(config, "new_decoder_architecture", default=False)
    key_heads = _key_heads(config, heads, grouped=grouped)
    eps = positive(config, "layer_norm_epsilon", 1e-5)
    bias = flag(config, "bias", default=False)
    two = grouped and integer(config, "num_ln_in_parallel_attn", 2) == 2
    norm = "ln_attn" if two else "input_layernorm"
    alibi = flag(config, "alibi", default=False)
    rotary = None if alibi else _rotary(config, head_dim)
    scale, _ = with_factor(inverse_root(head_dim), rotary)
    biases = partial(_bias, heads, scale) if alibi else None
    stated = config.get("max_position_embeddings") is not None

    def describe(prefix: str, layer: int) -> Attention:
        root = f"{prefix}h.{layer}."
        name = f"{root}self_attention.query_key_value"
        query, key = _projections(
            name, f"{name}.bias" if bias else None, heads, key_heads, head_dim
        )
        return Attention(
            module=f"{root}self_attention",
            layer=layer,
            width=width,
            head_dim=head_dim,
            query=query,
            key=key,
            input_norm=Norm("layer", f"{root}{norm}.weight", f"{root}{norm}.bias"),
            scale=scale,
            rotary=rotary,
            position_bias=biases,
            embedding=None
            if layer or alibi
            else EmbeddingInput(checkpoint, f"{prefix}word_embeddings.weight", width, eps),
        )

    return assemble(
        checkpoint,
        NAMING,
        describe,
        family="falcon",
        layers=layers,
        layers_key="num_hidden_layers",
        asked=asked,
        facts={"max_positions": integer(config, "max_position_embeddings") if stated else None},
    )


def _key_heads(config: Mapping[str, Any], heads: int, *, grouped: bool) -> int:
    if not grouped and flag(config, "multi_query", default=True):
        return 1
    found = integer(config, "num_kv_heads", heads)
    split(heads, found, "num_attention_heads", "num_kv_heads")
    if not grouped and found != heads:
        msg = (
            "num_kv_heads in config.json must be num_attention_heads without multi_query and "
            f"new_decoder_architecture. Got {found} and {heads}."
        )
        raise CheckpointError(msg)
    return found


def _projections(
    name: str, bias: str | None, heads: int, key_heads: int, head_dim: int
) -> tuple[Projection, Projection]:
    """[q…, k, v] for each group of query heads: one group (multi_query), several, or one a head."""
    group = heads // key_heads
    query, key = (
        Projection(
            weight=f"{name}.weight",
            bias=bias,
            heads=count,
            first=first,
            outputs=(heads + 2 * key_heads) * head_dim,
            stride=(group + 2) * head_dim,
            together=together,
        )
        for count, first, together in ((heads, 0, group), (key_heads, group * head_dim, 1))
    )
    return query, key


def _rotary(config: Mapping[str, Any], head_dim: int) -> Rotary | None:
    rotary = rotary_from_config(config, None, head_dim)
    if rotary is not None and rotary.unrotated.size:
        msg = "partial_rotary_factor in config.json must be 1 for falcon. Got another number."
        raise UnsupportedError(msg)
    return rotary


def _bias(heads: int, scale: Enclosure, head: int) -> LinearBias:
    return LinearBias(times(in_bfloat16(bloom_slope(heads, head)), scale), BFLOAT16)


FAMILY = Family(
    "falcon",
    ("falcon",),
    ("Falcon",),
    "LayerNorm, projections fused in groups, RoPE or ALiBi (added once, before the scale)",
    read,
)
