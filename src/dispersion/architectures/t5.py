"""T5: RMSNorm, logits without a scale, and a relative bias that all layers of a stack share.

In UMT5 each layer has its own.

Encoder, decoder and cross-attention are read. The latter's queries come from its own norm in the
decoder, its keys from the norm at the encoder's end, so both are capped; it has no bias.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dispersion.architectures import ledger
from dispersion.architectures.assemble import (
    check_asked,
)
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.biased_attention import TableAttention
from dispersion.architectures.ledger import Naming
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.two_stacks import Share, plan_of_stacks
from dispersion.config import integer
from dispersion.errors import CheckpointError
from dispersion.head import ONE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dispersion.checkpoint import Checkpoint

SELF, CROSS = "layer.0.SelfAttention", "layer.1.EncDecAttention"
ENCODER = Naming(
    stack="encoder.block",
    module=SELF,
    near=("layer.0.layer_norm",),
    inside={
        r"layer\.0\.SelfAttention\.[vo]\.weight": ledger.VALUE,
        r"layer\.1\.(DenseReluDense|mlp)\..+": ledger.FEED_FORWARD,
        r"layer\.1\.layer_norm\.weight": ledger.AFTER,
    },
    outside={r"encoder\.final_layer_norm\.weight": ledger.FINAL_NORM},
)
DECODER = Naming(
    stack="decoder.block",
    module=SELF,
    near=("layer.0.layer_norm", CROSS, "layer.1.layer_norm"),
    inside={
        r"layer\.0\.SelfAttention\.[vo]\.weight": ledger.VALUE,
        r"layer\.1\.EncDecAttention\.[vo]\.weight": ledger.VALUE,
        r"layer\.1\.EncDecAttention\.relative_attention_bias\.weight": "no model adds it",
        r"layer\.2\.(DenseReluDense|mlp)\..+": ledger.FEED_FORWARD,
        r"layer\.2\.layer_norm\.weight": ledger.AFTER,
    },
    outside={
        r"(encoder\.|decoder\.)?final_layer_norm\.weight": ledger.FINAL_NORM,
        r"(.+\.)?(shared|embed_tokens)\.weight": ledger.EMBEDDING,
        r"(.+\.)?lm_head\..+": ledger.HEAD,
    },
)
ALONE = replace(
    DECODER,
    inside={**DECODER.inside, r"layer\.1\.layer_norm\.weight": ledger.UNASKED},
    refused={r"layer\.1\.EncDecAttention\..+": "cross-attention: its keys come from another model"},
)


@dataclass(frozen=True)
class Stack:
    """One of the two stacks of a file."""

    naming: Naming
    prefix: str
    layers: int

    @classmethod
    def read(cls, checkpoint: Checkpoint, naming: Naming, layers: int, key: str) -> Stack:
        """Find one stack's tensors.

        Raises:
            CheckpointError: they disagree with the config.
        """
        prefix = naming.find_prefix(checkpoint, range(layers))
        naming.check_layers(checkpoint, prefix, layers, key)
        return cls(naming, prefix, layers)


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read the encoder, the decoder, and the attention between them where the file holds both."""
    return read_stacks(checkpoint, asked, "t5", ENCODER, _self_attention)


def read_stacks(
    checkpoint: Checkpoint,
    asked: frozenset[int] | None,
    family: str,
    naming: Naming,
    describe: Callable[[Mapping[str, Any], Stack, int], Attention],
) -> Plan:
    """The same where `naming` says how the encoder calls its tensors, `describe` what it does."""
    encoder, decoder = _stacks(checkpoint, naming)
    stacks = [stack for stack in (encoder, decoder) if stack is not None]
    check_asked(asked, max(stack.layers for stack in stacks))
    attentions: list[Attention] = []
    for stack in stacks:
        for layer in range(stack.layers):
            if asked is not None and layer not in asked:
                continue
            own = describe if stack is encoder else _self_attention
            attentions.append(own(checkpoint.config, stack, layer))
            if stack is decoder and encoder is not None:
                attentions.append(_cross_attention(checkpoint.config, stack, layer, encoder))
    shares = []
    if encoder is not None:
        begins = f"{encoder.prefix}encoder.block."
        shares.append(Share(encoder.naming, encoder.prefix, begins))
    shares.append(Share(DECODER if decoder is None else decoder.naming, stacks[-1].prefix))
    return plan_of_stacks(
        checkpoint,
        family,
        attentions,
        shares,
        modules=sum(stack.layers for stack in stacks)
        + (decoder.layers if encoder and decoder else 0),
        facts={"max_positions": None},
    )


def _stacks(checkpoint: Checkpoint, encodes: Naming) -> tuple[Stack | None, Stack | None]:
    """The encoder and the decoder, None for one that the file does not hold."""
    layers = integer(checkpoint.config, "num_layers", maximum=ledger.MOST_LAYERS)
    key = "num_decoder_layers"
    later = integer(checkpoint.config, key, layers, maximum=ledger.MOST_LAYERS)
    held = [
        any(f"{side}.block." in name for name in checkpoint.names)
        for side in ("encoder", "decoder")
    ]
    if not any(held):
        msg = (
            "a t5 checkpoint must hold tensors named encoder.block.N or decoder.block.N. Got none."
        )
        raise CheckpointError(msg)
    encoder = Stack.read(checkpoint, encodes, layers, "num_layers") if held[0] else None
    naming = DECODER if held[0] else ALONE
    return encoder, Stack.read(checkpoint, naming, later, key) if held[1] else None


def sides(config: Mapping[str, Any], module: str) -> dict[str, Any]:
    """What both kinds of attention have alike."""
    query, key = (
        Projection(f"{module}.{side}.weight", None, integer(config, "num_heads")) for side in "qk"
    )
    return {
        "module": module,
        "width": integer(config, "d_model"),
        "head_dim": integer(config, "d_kv"),
        "query": query,
        "key": key,
        "scale": ONE,
    }


def _self_attention(config: Mapping[str, Any], stack: Stack, layer: int) -> TableAttention:
    blocks = f"{stack.prefix}{stack.naming.stack}."
    owner = layer if config.get("model_type") == "umt5" else 0
    buckets, furthest, directions = table(config, 2 if stack.naming is ENCODER else 1)
    return TableAttention(
        **sides(config, f"{blocks}{layer}.{SELF}"),
        layer=layer,
        input_norm=Norm("rms", f"{blocks}{layer}.layer.0.layer_norm.weight"),
        causal=directions == 1,
        table=f"{blocks}{owner}.{SELF}.relative_attention_bias.weight",
        buckets=buckets,
        furthest=furthest,
        directions=directions,
    )


def _cross_attention(
    config: Mapping[str, Any], stack: Stack, layer: int, encoder: Stack
) -> Attention:
    root = f"{stack.prefix}{stack.naming.stack}.{layer}."
    return Attention(
        **sides(config, root + CROSS),
        layer=layer,
        input_norm=Norm("rms", f"{root}layer.1.layer_norm.weight"),
        key_input=Norm("rms", f"{encoder.prefix}encoder.final_layer_norm.weight"),
        causal=False,
    )


def table(config: Mapping[str, Any], directions: int) -> tuple[int, int, int]:
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
    ("t5", "mt5", "pop2piano", "switch_transformers", "umt5"),
    ("T5", "MT5", "Pop2Piano", "SwitchTransformers", "UMT5"),
    "RMSNorm, no logit scale, relative bias by distance; encoder, decoder and cross-attention",
    read,
)
