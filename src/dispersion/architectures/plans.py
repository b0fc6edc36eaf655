"""What an architecture makes of a checkpoint: heads to build, tensors skipped and refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dispersion.checkpoint import Checkpoint
    from dispersion.embedding import EmbeddingInput
    from dispersion.head import Head
    from dispersion.results import Refused, Skipped


@dataclass(frozen=True, eq=False)
class LayerPlan:
    """One attention layer and the way to its heads.

    Attributes:
        module: the attention's tensor-name prefix in the file.
        layer: index of the layer.
        query_heads, key_heads, head_dim: sizes.
        embedding: the token embedding that the layer reads, behind a norm or none; None for layers
            that read what other layers wrote.
        heads: reads the weights and yields (head, kv_head, Head). Heads of one kv head follow each
            other and share the same key `BallImage`; weights are read one head at a time.
        tensors: names of the tensors that `heads` reads.
        window: number of keys that a query sees, or None for all.
    """

    module: str
    layer: int
    query_heads: int
    key_heads: int
    head_dim: int
    heads: Callable[[], Iterator[tuple[int, int, Head]]] = field(repr=False)
    embedding: EmbeddingInput | None = field(default=None, repr=False)
    tensors: tuple[str, ...] = field(default=(), repr=False)
    window: int | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything a checkpoint holds: used by a layer, skipped with a reason or refused by name.

    Attributes:
        family: name of the family that read the checkpoint.
        model: facts that JSON can hold (model_type, layers, query_heads, key_heads, head_dim,
            width, dtype, max_positions, qk_norm, rope_type).
        layers: in order; layers that were refused or not asked for are absent.
        skipped: tensors that no logit depends on, or of layers not asked for.
        refused: attention that cannot be read, and why.
        learned_positions: the longest context the position table allows, or None.
    """

    family: str
    model: dict[str, Any]
    layers: tuple[LayerPlan, ...]
    skipped: tuple[Skipped, ...]
    refused: tuple[Refused, ...]
    learned_positions: int | None = None


@dataclass(frozen=True)
class Family:
    """One family of architectures.

    Attributes:
        name: the family's name.
        model_types: values of config.json's model_type that it reads.
        classes: class prefixes ("Llama" of LlamaForCausalLM), for configs without model_type.
        notes: one line on what is peculiar about its attention.
        read: makes the plan of a checkpoint, for some layers or (None) all.
    """

    name: str
    model_types: tuple[str, ...]
    classes: tuple[str, ...]
    notes: str
    read: Callable[[Checkpoint, frozenset[int] | None], Plan] = field(repr=False)


@dataclass(frozen=True)
class FamilyInfo:
    """A supported family, as listed for people."""

    name: str
    model_types: tuple[str, ...]
    notes: str
