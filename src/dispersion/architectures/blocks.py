"""Transformer blocks described by names: one norm, one attention, everything as plain fields.

Where `Decoder` knows Llama's names, this one is told them, and covers models whose blocks are built
alike but called otherwise: LayerNorms, fused projections, norms behind the block, encoders.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from dispersion.architectures import windows
from dispersion.architectures.blocks_reader import BlocksReader
from dispersion.architectures.plans import Family
from dispersion.head import ONE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dispersion.architectures.attention import Attention, Norm
    from dispersion.architectures.layouts import Layout
    from dispersion.architectures.plans import Plan
    from dispersion.architectures.rotations import Rotation
    from dispersion.architectures.windows import WindowRule
    from dispersion.checkpoint import Checkpoint
    from dispersion.enclosure import Enclosure
    from dispersion.position_bias import Bias

    Names = Mapping[str, str]


@dataclass(frozen=True)
class Keys:
    """Keys of a config's sizes; where there are several, the class's own one is the first."""

    layers: tuple[str, ...] = ("num_hidden_layers",)
    width: tuple[str, ...] = ("hidden_size",)
    heads: tuple[str, ...] = ("num_attention_heads",)
    positions: tuple[str, ...] = ("max_position_embeddings",)


GPT = Keys(
    ("n_layer", "num_hidden_layers"),
    ("n_embd", "hidden_size"),
    ("n_head", "num_attention_heads"),
    ("n_positions", "max_position_embeddings"),
)


@dataclass(frozen=True)
class Blocks:
    """How a family's blocks are called and what they do.

    Attributes:
        stack: the word in front of the layer index ("h", "encoder.layer").
        module: the attention within a layer; nothing where the layer itself holds the projections.
        norm: the norm in front of attention, within a layer; None for none.
        inside: pattern of a name within a layer → why it is skipped.
        outside: pattern of a name outside the layers, without the prefix → why.
        refused: pattern of a name within a layer → why its module is refused.
        near: modules within a layer, besides attention and its norm, in which a tensor that is not
            known would change attention.
        keys: where the config has its sizes.
        sides: names of the projections of queries and keys within the module; one name for a
            fused projection, whose `layout` says where the heads lie.
        layout: see `sides`.
        transposed: whether outputs of the projections are columns.
        key_heads: key of the number of key heads, the number itself, or None for as many as
            query heads.
        key_heads_absent: their number where that key is absent; None for as many as query heads.
        own_head_dim: whether `head_dim` in the config sets the size of a head.
        bias: key that switches the projections' biases on, or always True or False.
        bias_absent: whether there are biases where that key is absent.
        key_bias: False where keys have no bias though queries have one.
        query_bias: name of the queries' bias within the module where it is not its projection's.
        norm_kind, norm_parts: kind of the norm in front of attention, and its tensors.
        post_norm: whether `norm` stands at the end of a block, so that a layer reads the norm of
            the layer before it.
        first_norm: the norm that the first layer reads, outside the layers; None for `norm` of the
            layer itself, or none where `post_norm`.
        first_map: the linear map behind `first_norm`, outside the layers, and the coordinates of
            that norm; or None.
        qk_norm: the QK norm, its names within the module with {side} for q and k, {word} for query
            and key; or None.
        qk_eps: its ε where it is not that of the other norms.
        eps: ε of the norms where `eps_key` is absent from the config, or None of that key.
        scale: logit scale: 1/√head_dim, or 1.
        rotation: how positions turn queries and keys, or None.
        position_bias: from the number of heads, the logit scale and a head's index to what
            positions add to its logits; or None.
        biased: from the reader, the prefix and a layer's attention to one that tables add biases
            to (`with_tables`); or None.
        clip: to which size coordinates of queries and keys are clamped before they turn, or None.
        window: which layers slide.
        halved: whether windows reach as far to both sides as `window` says.
        causal: whether a query sees earlier tokens alone, or a key of the config that says so.
        table: name of the table of learned positions without the prefix, or None.
        table_before: rows of that table in front of the first position's.
        table_whole: whether the config counts those rows among its positions.
        positions_absent: learned positions where the config does not say.
        tokens: name of the token table without the prefix, or None.
        types: name of the table of token types without the prefix, or None.
        token_scale: encloses the factor on token rows.
        zeroed: the token id whose row counts as zeros, or None.
        behind: from the reader and the prefix to attention behind the last layer; or None.
        vary: from a config and the description to the one that the config asks for; raises where
            the config asks for what is not covered.
    """

    stack: str
    module: str
    norm: str | None
    inside: Names
    outside: Names
    refused: Names = field(default_factory=dict)
    near: tuple[str, ...] = ()
    keys: Keys = Keys()
    sides: tuple[str, ...] = ("q_proj", "k_proj")
    layout: Layout | None = None
    transposed: bool = False
    key_heads: str | int | None = None
    key_heads_absent: int | None = None
    own_head_dim: bool = False
    bias: str | bool = True
    bias_absent: bool = True
    key_bias: bool = True
    query_bias: str | None = None
    norm_kind: Literal["rms", "layer"] = "layer"
    norm_parts: tuple[Literal["weight", "bias"], ...] = ("weight", "bias")
    post_norm: bool = False
    first_norm: str | None = None
    first_map: tuple[str, int] | None = None
    qk_norm: Norm | None = None
    qk_eps: float | None = None
    eps: float = 1e-5
    eps_key: str | None = "layer_norm_epsilon"
    scale: Literal["root", "one"] = "root"
    rotation: Rotation | None = None
    position_bias: Callable[[int, Enclosure, int], Bias] | None = None
    biased: Callable[[BlocksReader, str, Attention], Attention] | None = None
    clip: float | None = None
    window: WindowRule = windows.full
    halved: bool = False
    causal: bool | str = True
    table: str | None = None
    table_before: int = 0
    table_whole: bool = False
    positions_absent: int | None = None
    tokens: str | None = None
    types: str | None = None
    token_scale: Enclosure = ONE
    zeroed: int | None = None
    behind: Callable[[BlocksReader, str], Attention | None] | None = None
    vary: Callable[[Mapping[str, Any], Blocks], Blocks] | None = None

    def family(
        self,
        name: str,
        class_prefix: str | tuple[str, ...],
        notes: str,
        *,
        older: tuple[str, ...] = (),
        types: tuple[str, ...] = (),
    ) -> Family:
        """The family of this description, whose model_type is its name, or an `older` one.

        Where model_types are not its name, `types` has them all.
        """
        classes = (class_prefix,) if isinstance(class_prefix, str) else class_prefix

        def read(checkpoint: Checkpoint, layers: frozenset[int] | None) -> Plan:
            rules = self if self.vary is None else self.vary(checkpoint.config, self)
            return BlocksReader(rules, checkpoint).plan(name, layers)

        return Family(name, types or (name, *older), classes, notes, read)
