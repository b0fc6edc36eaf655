"""ALBERT: BERT's blocks, whose weights many layers share; the first reads projected embeddings.

Layer i runs the group ⌊i·groups/layers⌋ of `inner_group_num` blocks, so a model of 12 layers may
hold one block alone. Its heads still differ between layers: the first reads the embeddings' norm
through `embedding_hidden_mapping_in`, every other one the norm at the end of the block before it,
which need not be its own. Layers are numbered as they run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dispersion.architectures import ledger
from dispersion.architectures.assemble import (
    check_asked,
    check_rows,
    check_tensors,
    is_quantised,
    layer_plan,
    read_facts,
    split,
)
from dispersion.architectures.attention import Attention, Projection, Through
from dispersion.architectures.bert import absolute, embedding_input, stored_norm
from dispersion.architectures.plans import Family, Plan
from dispersion.architectures.scales import inverse_root
from dispersion.config import integer
from dispersion.errors import CheckpointError

if TYPE_CHECKING:
    from dispersion.checkpoint import Checkpoint

_STACK = "encoder.albert_layer_groups"
_MAP = "encoder.embedding_hidden_mapping_in"
_TABLE = "embeddings.position_embeddings.weight"
_NORM = r"(weight|bias|gamma|beta)"
NAMING = ledger.Naming(
    stack=_STACK,
    module="attention",
    inside={
        r"attention\.(value|dense)\.(weight|bias)": ledger.VALUE,
        rf"attention\.LayerNorm\.{_NORM}": ledger.AFTER,
        r"ffn(_output)?\.(weight|bias)": ledger.FEED_FORWARD,
        rf"full_layer_layer_norm\.{_NORM}": ledger.UNASKED,
    },
    outside={
        r"embeddings\.(word|position|token_type)_embeddings\.weight": ledger.EMBEDDING,
        r"embeddings\.position_ids": "index buffer",
        rf"embeddings\.LayerNorm\.{_NORM}": ledger.UNASKED,
        r"encoder\.embedding_hidden_mapping_in\.(weight|bias)": ledger.UNASKED,
        r"pooler\..+": "pooler",
        r"(predictions|sop_classifier|classifier|qa_outputs)\..+": ledger.HEAD,
    },
)


@dataclass(frozen=True)
class Block:
    """Which stored block a layer runs, and where its norm lies."""

    group: int
    inner: int

    def root(self, prefix: str) -> str:
        return f"{prefix}{_STACK}.{self.group}.albert_layers.{self.inner}"


def read(checkpoint: Checkpoint, asked: frozenset[int] | None) -> Plan:
    """Read an encoder, layer by layer as they run."""
    config = checkpoint.config
    absolute(config, "albert")
    order = _order(checkpoint)
    check_asked(asked, len(order))
    groups = range(max(block.group for block in order) + 1)
    inner = max(block.inner for block in order) + 1
    whole = replace(NAMING, module="albert_layers.0.attention")
    prefix = whole.find_prefix(checkpoint, groups)
    whole.check_layers(checkpoint, prefix, len(groups), "num_hidden_groups")
    namings = [replace(NAMING, stack=f"{_STACK}.{g}.albert_layers") for g in groups]
    for naming in namings:
        naming.check_layers(checkpoint, prefix, inner, "inner_group_num")
    positions = integer(config, "max_position_embeddings", 512)
    check_rows(checkpoint, prefix + _TABLE, positions)
    attentions = [
        _attention(checkpoint, prefix, order, layer)
        for layer in range(len(order))
        if asked is None or layer in asked
    ]
    packed = check_tensors(checkpoint, attentions)
    # Within a group, tensors are counted by block.
    by_block = [replace(a, layer=order[a.layer].inner) for a in attentions]
    parts = [
        {name for name in checkpoint.names if name.startswith(f"{prefix}{naming.stack}.")}
        for naming in namings
    ]
    parts[0] |= set(checkpoint.names).difference(*parts)
    found = [
        ledger.account(
            part, naming, prefix, by_block, already=packed, quantised=is_quantised(checkpoint)
        )
        for part, naming in zip(parts, namings, strict=True)
    ]
    refused = {r.name: r for each in found for r in each.refused}
    facts = read_facts(checkpoint, [a for a in attentions if a.module not in packed], len(order))
    return Plan(
        family="albert",
        model=facts | {"max_positions": positions},
        layers=tuple(layer_plan(checkpoint, a) for a in attentions if a.module not in refused),
        skipped=tuple(skipped for each in found for skipped in each.skipped),
        refused=tuple(refused.values()),
        learned_positions=positions,
    )


def _order(checkpoint: Checkpoint) -> list[Block]:
    """The blocks in the order in which they run."""
    config = checkpoint.config
    layers = integer(config, "num_hidden_layers", 12, maximum=ledger.MOST_LAYERS)
    groups = integer(config, "num_hidden_groups", 1)
    inner = integer(config, "inner_group_num", 1, maximum=ledger.MOST_LAYERS)
    if groups > layers:
        msg = (
            "num_hidden_groups in config.json must not exceed num_hidden_layers, else some group "
            f"never runs. Got {groups} and {layers}."
        )
        raise CheckpointError(msg)
    # The model divides floats; the same division here keeps to its rounding.
    return [Block(int(i / (layers / groups)), j) for i in range(layers) for j in range(inner)]


def _attention(checkpoint: Checkpoint, prefix: str, order: list[Block], layer: int) -> Attention:
    config = checkpoint.config
    width = integer(config, "hidden_size", 4096)
    heads = integer(config, "num_attention_heads", 64)
    inner = integer(config, "embedding_size", 128)
    head_dim = split(width, heads, "hidden_size", "num_attention_heads")
    module = f"{order[layer].root(prefix)}.attention"
    query, key = (
        Projection(f"{module}.{side}.weight", f"{module}.{side}.bias", heads)
        for side in ("query", "key")
    )
    before = f"{prefix}embeddings.LayerNorm"
    if layer:
        before = f"{order[layer - 1].root(prefix)}.full_layer_layer_norm"
    return Attention(
        module=module,
        layer=layer,
        width=width,
        head_dim=head_dim,
        query=query,
        key=key,
        input_norm=stored_norm(checkpoint, before),
        scale=inverse_root(head_dim),
        causal=False,
        through=None if layer else Through(f"{prefix}{_MAP}.weight", f"{prefix}{_MAP}.bias", inner),
        embedding=None if layer else embedding_input(checkpoint, prefix, inner),
    )


FAMILY = Family(
    "albert",
    ("albert",),
    ("Albert",),
    "as bert, layers that share weights; layer 0 reads a projection of narrower embeddings",
    read,
)
