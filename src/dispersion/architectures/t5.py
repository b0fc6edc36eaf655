"""T5: RMSNorm, logits without a scale, and a relative bias that all layers of a stack share.

Encoder and decoder self-attention are read; cross-attention is refused by name, since its keys come
from the encoder while its queries come from the decoder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.assemble import assemble
from dispersion.architectures.attention import Norm, Projection
from dispersion.architectures.biased_attention import TableAttention
from dispersion.architectures.plans import Family, Plan
from dispersion.config import integer
from dispersion.errors import CheckpointError
from dispersion.head import ONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.checkpoint import Checkpoint

_AFTER = {
    r"layer\.0\.SelfAttention\.[vo]\.weight": ledger.VALUE,
    r"layer\.[12]\.(DenseReluDense|mlp)\..+": ledger.FEED_FORWARD,
    r"layer\.[12]\.layer_norm\.weight": ledger.AFTER,
}
_OUTSIDE = {
    r"(encoder\.|decoder\.)?final_layer_norm\.weight": ledger.FINAL_NORM,
    r"(.+\.)?(shared|embed_tokens)\.weight": ledger.EMBEDDING,
    r"(.+\.)?lm_head\..+": ledger.HEAD,
}
_OTHER = "the other stack, read apart"


def _naming(stack: str, other: str) -> ledger.Naming:
    return ledger.Naming(
        stack=f"{stack}.block",
        module="layer.0.SelfAttention",
        near=("layer.0.layer_norm",),
        inside=_AFTER,
        outside=_OUTSIDE | {rf"{other}\.block\..+": _OTHER},
        refused={r"layer\.1\.EncDecAttention\..+": "cross-attention: keys of the encoder"},
    )


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read the encoder, and the decoder where the file holds one."""
    config = checkpoint.config
    layers = integer(config, "num_layers", maximum=ledger.MOST_LAYERS)
    plans = [
        _stack(checkpoint, asked, stack, count)
        for stack, count in (
            ("encoder", layers),
            ("decoder", integer(config, "num_decoder_layers", layers)),
        )
        if any(f"{stack}.block." in name for name in checkpoint.names)
    ]
    if not plans:
        msg = (
            "a t5 checkpoint must hold tensors named encoder.block.N or decoder.block.N. Got none."
        )
        raise CheckpointError(msg)
    first = plans[0]
    if len(plans) == 1:
        return first
    skipped = {s.name: s for plan in reversed(plans) for s in plan.skipped if s.reason != _OTHER}
    return replace(
        first,
        layers=tuple(layer for plan in plans for layer in plan.layers),
        skipped=tuple(skipped.values()),
        refused=tuple(r for plan in plans for r in plan.refused),
    )


def _stack(checkpoint: Checkpoint, asked: frozenset[int] | None, stack: str, layers: int) -> Plan:
    config = checkpoint.config
    heads, head_dim = integer(config, "num_heads"), integer(config, "d_kv")
    width = integer(config, "d_model")
    buckets, furthest, directions = _table(config, 2 if stack == "encoder" else 1)

    def describe(prefix: str, layer: int) -> TableAttention:
        root = f"{prefix}{stack}.block.{layer}.layer.0."
        query, key = (
            Projection(f"{root}SelfAttention.{side}.weight", None, heads) for side in ("q", "k")
        )
        return TableAttention(
            module=f"{root}SelfAttention",
            layer=layer,
            width=width,
            head_dim=head_dim,
            query=query,
            key=key,
            input_norm=Norm("rms", f"{root}layer_norm.weight"),
            scale=ONE,
            causal=directions == 1,
            table=f"{prefix}{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
            buckets=buckets,
            furthest=furthest,
            directions=directions,
        )

    other = "decoder" if stack == "encoder" else "encoder"
    return assemble(
        checkpoint,
        _naming(stack, other),
        describe,
        family="t5",
        layers=layers,
        layers_key="num_layers" if stack == "encoder" else "num_decoder_layers",
        asked=asked,
        facts={"max_positions": None},
    )


def _table(config: Mapping[str, Any], directions: int) -> tuple[int, int, int]:
    """Buckets in all, the distance from which on they are one, and the directions they tell."""
    buckets = integer(config, "relative_attention_num_buckets", 32)
    furthest = integer(config, "relative_attention_max_distance", 128)
    exact = buckets // directions // 2
    if buckets % directions or not 0 < exact < furthest:
        msg = (
            "relative_attention_num_buckets must be even, at least 4 and less than four times "
            f"relative_attention_max_distance. Got {buckets} and {furthest}."
        )
        raise CheckpointError(msg)
    return buckets, furthest, directions


FAMILY = Family(
    "t5",
    ("t5",),
    ("T5",),
    "RMSNorm, no logit scale, relative bias by distance; cross-attention is refused",
    read,
)
