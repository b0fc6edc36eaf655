"""BLIP: an image encoder, and text encoders or decoders, built like BERT, that also attend to it.

What a class of the library holds differs: captions come from a decoder, matches from an encoder,
answers from a decoder that attends to what an encoder makes of question and image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dispersion.architectures import bert, clip_vision_model, ledger
from dispersion.architectures.assemble import check_asked, check_rows, split
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.ledger import Naming
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root
from dispersion.architectures.two_stacks import Share, plan_of_stacks
from dispersion.checkpoint.text import shown
from dispersion.config import integer
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dispersion.checkpoint import Checkpoint

_VISION = clip_vision_model.BLOCKS
_BERT = bert.NAMING.inside
CROSS = "crossattention"
IMAGE = Naming(
    stack="encoder.layers",
    module="self_attn",
    near=("layer_norm1",),
    inside={**_VISION.inside, r"self_attn\.projection\.(weight|bias)": ledger.VALUE},
    outside=_VISION.outside,
)
TEXT = Naming(
    stack="encoder.layer",
    module="attention.self",
    near=(CROSS,),
    inside={
        **_BERT,
        r"attention\.output\.LayerNorm\.(weight|bias)": ledger.UNASKED,
        r"crossattention\.self\.value\.(weight|bias)": ledger.VALUE,
        r"crossattention\.output\.dense\.(weight|bias)": ledger.VALUE,
        r"crossattention\.output\.LayerNorm\.(weight|bias)": ledger.AFTER,
    },
    outside={
        **bert.NAMING.outside,
        r"((visual|text)_projection|(vision|text|itm)_(proj|head))\..+|logit_scale": ledger.HEAD,
    },
)


@dataclass(frozen=True)
class Stack:
    """One stack of a file, and its sizes."""

    name: str
    prefix: str
    naming: Naming
    layers: int
    width: int
    heads: int


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read every stack that the file holds, and attention on the image or the question."""
    config = checkpoint.config
    text, image = _nested(config, "text_config"), _nested(config, "vision_config")
    seer = _stack(checkpoint, "vision_model", IMAGE, image, 12)
    readers = [
        _stack(checkpoint, name, TEXT, text, 8)
        for name in ("text_encoder", "text_decoder", "text_model")
        if any(part.startswith(f"{name}.") for part in checkpoint.names)
    ]
    stacks = [seer, *readers]
    check_asked(asked, max(stack.layers for stack in stacks))
    positions = integer(text, "max_position_embeddings", 512)
    attentions: list[Attention] = []
    for stack in stacks:
        if stack is not seer:
            table = f"{stack.prefix}embeddings.position_embeddings.weight"
            check_rows(checkpoint, table, positions)
        asks = stack.name == "text_decoder" and readers[0].name == "text_encoder"
        for layer in range(stack.layers):
            if asked is not None and layer not in asked:
                continue
            if stack is seer:
                attentions.append(_image_attention(stack, layer))
                continue
            attentions.append(_text_attention(stack, layer, positions))
            module = f"{stack.prefix}{TEXT.stack}.{layer}.{CROSS}.self"
            if f"{module}.query.weight" in checkpoint:
                keys = readers[0] if asks else seer
                attentions.append(_cross_attention(stack, layer, keys, positions))
    return plan_of_stacks(
        checkpoint,
        "blip",
        attentions,
        [
            *(Share(stack.naming, stack.prefix, f"{stack.name}.") for stack in stacks),
            Share(TEXT, ""),
        ],
        modules=sum(stack.layers for stack in stacks),
        facts={"max_positions": None},
    )


def _nested(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    own = config.get(key)
    if own is not None and not isinstance(own, dict):
        msg = f"{key} in config.json must be a mapping. Got {shown(repr(own))}."
        raise CheckpointError(msg)
    return own or {}


def _stack(
    checkpoint: Checkpoint, name: str, naming: Naming, config: Mapping[str, Any], heads: int
) -> Stack:
    """Find one stack's tensors; `heads` are those of its class where the config is silent."""
    prefix = f"{name}.bert." if name == "text_decoder" else f"{name}."
    layers = integer(config, "num_hidden_layers", 12, maximum=ledger.MOST_LAYERS)
    naming.check_layers(checkpoint, prefix, layers, "num_hidden_layers")
    width = integer(config, "hidden_size", 768)
    heads = integer(config, "num_attention_heads", heads)
    split(width, heads, "hidden_size", "num_attention_heads")
    return Stack(name, prefix, naming, layers, width, heads)


def _norm(name: str) -> Norm:
    return Norm("layer", f"{name}.weight", f"{name}.bias")


def _common(stack: Stack, layer: int, module: str) -> dict[str, Any]:
    head_dim = stack.width // stack.heads
    return {
        "module": f"{stack.prefix}{stack.naming.stack}.{layer}.{module}",
        "layer": layer,
        "width": stack.width,
        "head_dim": head_dim,
        "scale": inverse_root(head_dim),
    }


def _image_attention(stack: Stack, layer: int) -> Attention:
    common = _common(stack, layer, IMAGE.module)
    fused = f"{common['module']}.qkv"
    query, key = (
        Projection(f"{fused}.weight", f"{fused}.bias", stack.heads, first, 3 * stack.width)
        for first in (0, stack.width)
    )
    norm = _norm(f"{stack.prefix}{IMAGE.stack}.{layer}.layer_norm1")
    return Attention(**common, query=query, key=key, input_norm=norm, causal=False)


def _sides(stack: Stack, module: str) -> dict[str, Any]:
    return {
        side: Projection(f"{module}.{side}.weight", f"{module}.{side}.bias", stack.heads)
        for side in ("query", "key")
    }


def _text_attention(stack: Stack, layer: int, positions: int) -> Attention:
    common = _common(stack, layer, TEXT.module)
    before = f"{TEXT.stack}.{layer - 1}.output" if layer else "embeddings"
    return Attention(
        **common,
        **_sides(stack, common["module"]),
        input_norm=_norm(f"{stack.prefix}{before}.LayerNorm"),
        causal=stack.name == "text_decoder",
        # Images have no such limit, but no query of a text sees more keys than there are positions.
        window=positions,
    )


def _cross_attention(stack: Stack, layer: int, keys: Stack, positions: int) -> Attention:
    common = _common(stack, layer, f"{CROSS}.self")
    end = "post_layernorm"
    if keys.naming is TEXT:
        end = f"{TEXT.stack}.{keys.layers - 1}.output.LayerNorm"
    return Attention(
        **common,
        **_sides(stack, common["module"]),
        input_norm=_norm(f"{stack.prefix}{TEXT.stack}.{layer}.attention.output.LayerNorm"),
        key_input=_norm(f"{keys.prefix}{end}"),
        key_width=keys.width,
        known_inputs=keys.width == stack.width,
        causal=False,
        window=positions if keys.naming is TEXT else None,
    )


FAMILY = Family(
    "blip",
    ("blip",),
    ("Blip",),
    "image encoder, text as in bert, and its cross-attention to images or questions",
    read,
)
