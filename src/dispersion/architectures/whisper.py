"""Whisper: an audio encoder, and a text decoder whose layers also attend to what it says.

Three kinds of attention share one index: the encoder's, the decoder's own, and the decoder's on the
encoder (cross-attention), whose keys come from the encoder's final norm. Modules tell them apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dispersion.architectures import ledger
from dispersion.architectures.assemble import (
    check_asked,
    check_rows,
    split,
)
from dispersion.architectures.attention import Attention, Norm, Projection
from dispersion.architectures.ledger import Naming
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root
from dispersion.architectures.two_stacks import Share, plan_of_stacks
from dispersion.config import integer
from dispersion.embedding import EmbeddingInput

if TYPE_CHECKING:
    from typing import Any

    from dispersion.checkpoint import Checkpoint

EPS = 1e-5
CROSS = "encoder_attn"
ENCODER = Naming(
    stack="encoder.layers",
    module="self_attn",
    near=("self_attn_layer_norm",),
    inside={
        r"self_attn\.(v_proj|out_proj)\.(weight|bias)": ledger.VALUE,
        r"fc[12]\.(weight|bias)": ledger.FEED_FORWARD,
        r"final_layer_norm\.(weight|bias)": ledger.AFTER,
    },
    outside={
        r"encoder\.conv[12]\.(weight|bias)|encoder\.embed_positions\.weight": ledger.EMBEDDING,
        r"encoder\.layer_norm\.(weight|bias)": ledger.FINAL_NORM,
    },
)
DECODER = replace(
    ENCODER,
    stack="decoder.layers",
    near=("self_attn_layer_norm", CROSS, f"{CROSS}_layer_norm"),
    inside={
        **ENCODER.inside,
        rf"{CROSS}\.(v_proj|out_proj)\.(weight|bias)": ledger.VALUE,
    },
    outside={
        r"decoder\.embed_(tokens|positions)\.weight": ledger.EMBEDDING,
        r"decoder\.layer_norm\.(weight|bias)": ledger.FINAL_NORM,
        r"(.*\.)?(proj_out|projector|classifier)\..+|layer_weights": ledger.HEAD,
    },
)
ALONE = replace(
    DECODER,
    inside={**DECODER.inside, rf"{CROSS}_layer_norm\.(weight|bias)": ledger.UNASKED},
    refused={rf"{CROSS}\..+": "cross-attention: its keys come from another model"},
)


@dataclass(frozen=True)
class Stack:
    """One of the two stacks of a file, and its sizes.

    Attributes:
        naming, prefix: its names.
        layers, heads, positions: its sizes; `layers_key` is the key of the first.
    """

    naming: Naming
    prefix: str
    layers: int
    layers_key: str
    heads: int
    positions: int

    @classmethod
    def read(cls, checkpoint: Checkpoint, naming: Naming) -> Stack:
        """Read one stack's sizes and find its tensors.

        Raises:
            CheckpointError: they disagree, or a size is missing.
        """
        config, side = checkpoint.config, naming.stack.partition(".")[0]
        key, table = f"{side}_layers", f"max_{_WAYS[side]}_positions"
        layers = integer(config, key, maximum=ledger.MOST_LAYERS)
        prefix = naming.find_prefix(checkpoint, range(layers))
        naming.check_layers(checkpoint, prefix, layers, key)
        heads = integer(config, f"{side}_attention_heads")
        split(integer(config, "d_model"), heads, "d_model", f"{side}_attention_heads")
        positions = integer(config, table, _POSITIONS[side])
        check_rows(checkpoint, f"{prefix}{side}.embed_positions.weight", positions)
        return cls(naming, prefix, layers, key, heads, positions)


_WAYS = {"encoder": "source", "decoder": "target"}
_POSITIONS = {"encoder": 1500, "decoder": 448}


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read both stacks, or the one that an audio classifier or a text decoder has."""
    encoder, decoder = _stacks(checkpoint)
    stacks = [stack for stack in (encoder, decoder) if stack is not None]
    check_asked(asked, max(stack.layers for stack in stacks))
    most = max(stack.positions for stack in stacks)
    attentions = []
    for stack in stacks:
        for layer in range(stack.layers):
            if asked is None or layer in asked:
                attentions.append(_attention(checkpoint, stack, layer, stack, most))
                if stack is decoder and encoder is not None:
                    attentions.append(_attention(checkpoint, stack, layer, encoder, most))
    shares = []
    if encoder is not None:
        shares.append(Share(encoder.naming, encoder.prefix, f"{encoder.prefix}encoder."))
    shares.append(Share(DECODER if decoder is None else decoder.naming, stacks[-1].prefix))
    return plan_of_stacks(
        checkpoint,
        "whisper",
        attentions,
        shares,
        modules=sum(stack.layers for stack in stacks)
        + (decoder.layers if encoder and decoder else 0),
        facts=_facts(stacks) | {"max_positions": most},
        positions=most,
    )


def _stacks(checkpoint: Checkpoint) -> tuple[Stack | None, Stack | None]:
    """The encoder and the decoder; None for the one that a class with one stack does not have."""
    classes = checkpoint.config.get("architectures")
    classes = classes if isinstance(classes, list) else []
    if "WhisperForAudioClassification" in classes:
        return Stack.read(checkpoint, ENCODER), None
    if "WhisperForCausalLM" in classes:
        return None, Stack.read(checkpoint, ALONE)
    return Stack.read(checkpoint, ENCODER), Stack.read(checkpoint, DECODER)


def _facts(stacks: list[Stack]) -> dict[str, Any]:
    facts = {}
    for stack in stacks:
        facts[stack.layers_key] = stack.layers
        facts[stack.layers_key.replace("layers", "positions")] = stack.positions
    return facts


def _attention(
    checkpoint: Checkpoint, stack: Stack, layer: int, keys: Stack, most: int
) -> Attention:
    """A layer's attention on its own stack, or on what another stack's final norm gives."""
    width = integer(checkpoint.config, "d_model")
    name = "self_attn" if keys is stack else CROSS
    root = f"{stack.prefix}{stack.naming.stack}.{layer}."
    module = root + name
    own = keys is stack
    reads_tokens = own and stack.naming.stack == DECODER.stack and layer == 0
    return Attention(
        module=module,
        layer=layer,
        width=width,
        head_dim=width // stack.heads,
        query=Projection(f"{module}.q_proj.weight", f"{module}.q_proj.bias", stack.heads),
        key=Projection(f"{module}.k_proj.weight", None, stack.heads),
        input_norm=_norm(f"{root}{name}_layer_norm"),
        key_input=None if own else _norm(f"{keys.prefix}encoder.layer_norm"),
        scale=inverse_root(width // stack.heads),
        # No query sees more keys than there are positions, whatever the longer stack has.
        window=None if keys.positions == most else keys.positions,
        causal=own and stack.naming.stack == DECODER.stack,
        embedding=_embedding(checkpoint, stack.prefix, width) if reads_tokens else None,
    )


def _norm(name: str) -> Norm:
    return Norm("layer", f"{name}.weight", f"{name}.bias")


def _embedding(checkpoint: Checkpoint, prefix: str, width: int) -> EmbeddingInput:
    root = f"{prefix}decoder."
    return EmbeddingInput(
        source=checkpoint,
        tokens=f"{root}embed_tokens.weight",
        width=width,
        eps=EPS,
        positions=f"{root}embed_positions.weight",
    )


FAMILY = Family(
    "whisper",
    ("whisper",),
    ("Whisper",),
    "encoder, decoder and cross-attention; LayerNorm before each, keys have no bias",
    read,
)
